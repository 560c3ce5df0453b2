-- Receiving.
begin;
select plan(69);

select is(
  (select format('(%s) -> %s %s', pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid), p.provolatile)
   from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.proname = f.name),
  f.signature, 'signature of ' || f.name)
from (values
  ('receive', '(queue text, max_messages integer, visibility interval, worker text) -> SETOF workq.received v')
) f (name, signature);
select is((select string_agg(a.attname, ',' order by a.attnum) from pg_attribute a where a.attrelid = 'workq.received'::regclass and a.attnum > 0),
  'id,lease,attempt,max_attempts,lease_until,enqueued_at,priority,group_key,kind,headers,payload,body,content_type', 'columns of received');

-- Tests below put rows where no clock would: time passes by changing visible_at, never by sleeping.
-- A row that the clock has passed is at clock_timestamp(): above every floor.
select workq.create_queue('q') as q \gset
select is_empty($$ select * from workq.receive('q') $$, 'an empty queue gives nothing');
select throws_ok($$ select workq.receive('nope') $$, 'WQ001', null, 'WQ001');
select throws_ok(format('select workq.receive(''q'', %s)', a), '22023', null, 'out of range: ' || a) from unnest(array['0', '1001', 'null', '-1',
  'visibility => ''0''', 'visibility => ''12 hours 1 ms''', 'visibility => ''-1 s''', 'worker => repeat(''w'', 257)']) a;

select id, visible_at from workq.enqueue('q', '{"n": 1}', '\x01', 'application/x', 'k', '{"h": "v"}', 3) \gset e_
select clock_timestamp() as t0 \gset
select *, to_jsonb(r) as row from workq.receive('q', worker => 'w1') r \gset r_
select is(:'r_row'::jsonb - '{lease,lease_until,enqueued_at}'::text[], jsonb_build_object('id', :e_id, 'attempt', 1, 'max_attempts', 5, 'priority', 3, 'group_key', null,
  'kind', 'k', 'headers', '{"h": "v"}'::jsonb, 'payload', '{"n": 1}'::jsonb, 'body', '\x01', 'content_type', 'application/x'), 'the message, word for word');
select ok(:'r_lease_until'::timestamptz - '30 seconds'::interval between :'t0' and clock_timestamp(), 'leased for the visibility of the queue');
select is(:'r_enqueued_at'::timestamptz, (select created_at from workq.message where id = :e_id), 'enqueued_at');
select is((select (d.lease, d.worker, d.visible_at) from workq.delivery d), (:r_lease::bigint, 'w1'::text, :'r_lease_until'::timestamptz), 'the visibility time is the lease');
select is_empty($$ select * from workq.receive('q') $$, 'a leased one is not received');

-- The lease runs out: receivable at once, with a larger lease, counted, and in the history.
update workq.delivery set visible_at = clock_timestamp(), status = '{"p": 1}';
select * from workq.receive('q', 5, '1 hour', 'w2') \gset s_
select is(:s_id::bigint, :e_id::bigint, 'a lease that ran out is received again');
select cmp_ok(:s_lease::bigint, '>', :r_lease::bigint, 'lease numbers grow');
select is(:s_lease::bigint >> 16 > :r_lease::bigint >> 16, true, 'above their 16 random bits too');
select is(:s_attempt, 2, 'attempt goes up at receive');
select ok(:'s_lease_until'::timestamptz - clock_timestamp() between '59 minutes' and '1 hour', 'a visibility that is given is taken as it is');
select is((select status from workq.delivery), null, 'the report of the one before is gone');
select is((select array_agg(row(outcome, attempt, lease, worker, finished_at >= started_at)::text) from workq.history('q', :e_id)),
  array[row('timeout', 1, :r_lease, 'w1', true)::text], 'history: timeout');
select is(workq.ack('q', :e_id, :s_lease), 'acked');

-- One lease number for a call, another for the next.
select count(*) as n from workq.enqueue_many('q', kinds => '{a,b,c}') \gset
select is((select count(distinct lease) from workq.receive('q', 2)), 1::bigint, 'one lease number for a call');
select lease from workq.receive('q') \gset n_
select is((select count(*) from workq.delivery where lease = :n_lease), 1::bigint, 'another for the next');
select workq.purge_queue('q') as n \gset

-- Order: priority, then the oldest.
select count((workq.enqueue('q', kind => k, priority => p)).id) as n from (values ('c', 5), ('f', 10), ('a', 0), ('d', 5), ('b', 0), ('e', 9)) v (k, p) \gset
select is((select array_agg(kind order by ord) from workq.receive('q', 4) with ordinality r (id, lease, attempt, max_attempts, lease_until, enqueued_at, priority, group_key, kind, headers, payload, body, content_type, ord)),
  '{a,b,c,d}', 'by priority, then the oldest first');
select is((select array_agg(kind order by ord) from workq.receive('q', 100) with ordinality r (id, lease, attempt, max_attempts, lease_until, enqueued_at, priority, group_key, kind, headers, payload, body, content_type, ord)),
  '{e,f}', 'the rest, and no more than there is');
select workq.purge_queue('q') as n \gset
-- Also when some were received before: a lease that ran out waits in its old place, with what nobody has had.
select workq.alter_queue('q', max_attempts => 2) as q \gset
select count(*) as n from workq.enqueue_many('q', kinds => '{urgent_lapsed,lapsed,doomed}', priorities => '{0,4,2}') \gset
select count(*) as n from workq.receive('q', 3, '1 ms') \gset
update workq.delivery d set visible_at = clock_timestamp(), attempt = case m.kind when 'doomed' then 2 else 1 end from workq.message m where m.id = d.message_id;
select count(*) as n from workq.enqueue_many('q', kinds => '{fresh3,fresh5,fresh0}', priorities => '{3,5,0}') \gset
select is((select array_agg(kind order by ord) from workq.receive('q', 4) with ordinality r (id, lease, attempt, max_attempts, lease_until, enqueued_at, priority, group_key, kind, headers, payload, body, content_type, ord)),
  '{urgent_lapsed,fresh0,fresh3,lapsed}', 'leases that ran out stand in line with the others');
select is((select array_agg(kind) from workq.receive('q', 4)), '{fresh5}', 'the least urgent is left');
select workq.purge_queue('q') as n, workq.alter_queue('q', max_attempts => 5) as q \gset
select is((workq.enqueue('q', delay => '1 hour')).duplicate, false);
select is_empty($$ select * from workq.receive('q') $$, 'a delayed one is not received');
update workq.delivery set visible_at = clock_timestamp();
select is((select count(*) from workq.receive('q')), 1::bigint, 'until its time has come');
select workq.purge_queue('q') as n \gset
select count(*) as n from workq.enqueue_many('q', priorities => array_fill(5, array[1500])) \gset
select is((select count(*) from workq.receive('q', 1000)), 1000::bigint, 'a thousand at a time');
select workq.purge_queue('q') as n \gset

-- Rolled back is never happened.
select (workq.enqueue('q')).id as id \gset e_
savepoint s;
select is((select attempt from workq.receive('q')), 1, 'received in a savepoint');
rollback to s;
select is((select (d.attempt, d.lease is null) from workq.delivery d), (0, true), 'rolled back: no trace');
select is((select attempt from workq.receive('q')), 1, 'and received for the first time');
select workq.purge_queue('q') as n \gset

-- The factor: lease of attempt n = visibility × factor^(n-1), at most max_visibility.
select workq.create_queue('f', visibility => '10 seconds', visibility_factor => 2, max_visibility => '1 hour', max_attempts => 20000) as f \gset
select (workq.enqueue('f')).id as id \gset e_
create function pg_temp.next_lease(attempt int) returns text language plpgsql as $$
declare
  r record;
begin
  update workq.delivery d set attempt = next_lease.attempt - 1, visible_at = clock_timestamp();
  perform workq.receive('f');
  select d.attempt, d.visible_at - d.received_at as length into r from workq.delivery d where d.queue_id = (select id from workq.queue where name = 'f');
  return r.attempt || ': ' || round(extract(epoch from r.length));
end $$;
select is(pg_temp.next_lease(n), n || ': ' || seconds, format('attempt %s, factor 2: %s s', n, seconds))
from (values (1, 10), (2, 20), (3, 40), (4, 80), (9, 2560), (10, 3600), (11, 3600), (1000, 3600), (10000, 3600)) v (n, seconds);
select workq.alter_queue('f', visibility_factor => 100) as f \gset
select is(pg_temp.next_lease(n), n || ': 3600', 'factor 100 at attempt ' || n) from unnest(array[3, 10000]) n;
update workq.delivery set attempt = 2147483647, visible_at = clock_timestamp();
select lives_ok($$ select workq.receive('f') $$, 'the last attempt number that there is');
select workq.purge_queue('f') as n \gset

-- Exhausted and expired ones become dead letters on the spot, and do not count.
select workq.create_queue('x', max_attempts => 2) as x \gset
select r.ids[1] as exhausted, r.ids[2] as expired, r.ids[3] as good, r.ids[4] as own from (select array_agg(id order by id) as ids from workq.enqueue_many('x', kinds => '{exhausted,expired,good,own}')) r \gset
update workq.delivery set attempt = 2, lease = 1, received_at = clock_timestamp(), worker = 'w' where message_id = :exhausted;
update workq.delivery set expires_at = clock_timestamp() where message_id = :expired;
update workq.delivery set attempt = 2, max_attempts = 3 where message_id = :own;
select is((select array_agg(kind) from workq.receive('x', 2)), '{good,own}', 'those ahead do not count towards max_messages; max_attempts of the message goes before that of the queue');
select is((select array_agg(row(id, reason, attempt)::text order by id) from workq.dead_letters('x')),
  array[row(:exhausted, 'attempts_exhausted', 2)::text, row(:expired, 'expired', 0)::text], 'dead letters with their reasons');
select is((select array_agg(row(outcome, reason, attempt, worker)::text) from workq.history('x', :exhausted)), array[row('dead', 'attempts_exhausted', 2, 'w')::text], 'exactly one line of history');
select is_empty($$ select * from workq.receive('x', 10) $$, 'and once is enough');
select is((select count(*) from workq.dead_letters('x')), 2::bigint, 'exactly one dead letter each');
select workq.purge_queue('x') as n, workq.redrive('x', ids => array[0]) as none \gset

-- Beyond its ttl, but the lease is valid: the worker may finish. ttl never ends a lease.
select (workq.enqueue('x', ttl => '1 ms')).id as id \gset e_
update workq.delivery set expires_at = clock_timestamp() + interval '1 hour';
select id, lease from workq.receive('x') \gset r_
update workq.delivery set expires_at = clock_timestamp();
select is_empty($$ select * from workq.receive('x') $$, 'a valid lease is left alone');
select is(workq.ack('x', :r_id, :r_lease), 'acked', 'whatever the ttl says');

-- max_attempts null: forever.
select workq.create_queue('ever') as ever \gset
select workq.alter_queue('ever', clear => '{max_attempts}') as ever, (workq.enqueue('ever')).id as id \gset
update workq.delivery set attempt = 1000000;
select is((select row(attempt, max_attempts)::text from workq.receive('ever')), row(1000001, null::int)::text, 'no max_attempts, no end');

-- A thousand doomed ahead: receive stops, and idle says that it is not the end.
select workq.create_queue('doom', max_attempts => 1) as doom \gset
select count(*) as n from workq.enqueue_many('doom', kinds => array_fill('doomed'::text, array[2500])) \gset
update workq.delivery set attempt = 1 where queue_id = (select id from workq.queue where name = 'doom');
select (workq.enqueue('doom', kind => 'good')).id as good \gset
select clock_timestamp() as t0 \gset
select is_empty($$ select * from workq.receive('doom', 100) $$, 'with 2,500 doomed ahead, receive stops early');
select cmp_ok((select dead from workq.stats('doom')), '>=', 1000::bigint, 'after a thousand at least');
select cmp_ok((select dead from workq.stats('doom')), '<', 2500::bigint, 'and not after all');
select cmp_ok((workq.idle('doom')).next_due, '<=', clock_timestamp(), 'idle answers now');
create temp table got (r workq.received);
do $$ begin for i in 1..30 loop
  insert into got select r from workq.receive('doom', 100) r;
  exit when found;
end loop; end $$;
select is((select array_agg((r).kind) from got), '{good}', 'and calling again comes to the good one');
select is((select dead from workq.stats('doom')), 2500::bigint, 'each doomed one is dead once');
select is((select count(*) from workq.attempt a where a.outcome = 'dead' and a.queue_id = (select id from workq.queue where name = 'doom')), 2500::bigint, 'with one line of history each');

-- The floor is a hint: whatever lies below it is found by the next look.
select (workq.create_queue('fl')).queue as fl \gset
select (workq.enqueue('fl')).id as first, (workq.enqueue('fl')).id as late \gset
update workq.delivery set visible_at = clock_timestamp() + interval '1 hour' where message_id = :late;
select is((select id from workq.receive('fl', 10)), :first::bigint, 'the first walk sets the floor');
update workq.delivery set visible_at = clock_timestamp() - interval '1 day' where message_id = :late;
select setval(q.next_look, (extract(epoch from clock_timestamp()) * 1000000)::bigint - 1) as due, setval(q.next_glance, 1) as glance from workq.queue q where q.name = 'fl' \gset
select is((select id from workq.receive('fl', 10)), :late::bigint, 'a look that is due finds what lies a day below');
select setval(q.floor, (extract(epoch from clock_timestamp() + interval '1 hour') * 1000000)::bigint) as ahead from workq.queue q where q.name = 'fl' \gset
select (workq.enqueue('fl')).id as stepped \gset
select is((select id from workq.receive('fl', 10)), :stepped::bigint, 'a floor ahead of the clock counts as none');
select setval(q.next_look, (extract(epoch from clock_timestamp() + interval '1 hour') * 1000000)::bigint) as ahead, setval(q.next_glance, 1) as glance from workq.queue q where q.name = 'fl' \gset
update workq.delivery set visible_at = clock_timestamp() - interval '1 day' where message_id = :stepped;
select is((select id from workq.receive('fl', 10)), :stepped::bigint, 'a look of more than 30 s ahead counts as due');

select * from finish();
rollback;
