-- Dead letters back to work: redrive.
begin;
select plan(44);

select is(
  (select format('(%s) -> %s %s', pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid), p.provolatile)
   from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.proname = f.name),
  f.signature, 'signature of ' || f.name)
from (values
  ('redrive', '(queue text, to_queue text, max_messages integer, reason text, ids bigint[], dry_run boolean) -> bigint v')
) f (name, signature);
select workq.create_queue('q', ttl => '1 hour') as q, workq.create_queue('other', ttl => '2 hours') as other \gset
select throws_ok(format('select workq.redrive(''q'', %s)', a), '22023', null, 'out of range: ' || a) from unnest(array[
  'max_messages => 0', 'max_messages => 100001', 'max_messages => null', 'dry_run => null']) a;
select throws_ok('select workq.redrive(''nope'')', 'WQ001', null, 'WQ001');
select throws_ok('select workq.redrive(''q'', ''nope'')', 'WQ001', null, 'to_queue unknown: WQ001');
select throws_ok('select workq.redrive(null)', '22023', null, 'a null queue');
select is(workq.redrive('q'), 0::bigint, 'nothing to redrive');

-- Four dead letters: their causes in order.
select array_agg(r.id order by r.id) as ids from workq.enqueue_many('q', payloads => '{0,1,2,3}', bodies => array['\x00', '\x01', '\x02', '\x03']::bytea[], content_types => '{c0,c1,c2,c3}',
  kinds => '{exhausted,permanent,expired,permanent}', headers => array['{"h": 0}', '{"h": 1}', '{"h": 2}', '{"h": 3}']::jsonb[], priorities => '{1,2,3,4}', max_attempts => 7) r \gset
select (:'ids'::bigint[])[1] as a, (:'ids'::bigint[])[2] as b, (:'ids'::bigint[])[3] as c, (:'ids'::bigint[])[4] as d \gset
do $$ declare r workq.received; begin
  for r in select * from workq.receive('q', 10) loop
    if r.kind = 'exhausted' then update workq.delivery set attempt = 7 where message_id = r.id; end if;
    if r.kind = 'expired' then update workq.delivery set expires_at = clock_timestamp() where message_id = r.id; end if;
    perform workq.fail('q', r.id, r.lease, 'e', permanent => r.kind = 'permanent');
  end loop;
end $$;
select is((select array_agg(reason order by id) from workq.dead_letters('q')), '{attempts_exhausted,permanent,expired,permanent}', 'four dead letters');
update workq.dead_letter set died_at = clock_timestamp() - message_id * interval '1 s';  -- the last id is the oldest

select is(workq.redrive('q', dry_run => true), 4::bigint, 'dry_run counts');
select is(workq.redrive('q', max_messages => 3, dry_run => true), 3::bigint, 'up to max_messages');
select is(workq.redrive('q', reason => 'permanent', dry_run => true), 2::bigint, 'of a reason');
select is(workq.redrive('q', reason => 'nonsense', dry_run => true), 0::bigint, 'of a reason that nothing died of');
select is(workq.redrive('q', ids => array[:a, :b, 0, null], dry_run => true), 2::bigint, 'of these ids');
select is(workq.redrive('q', ids => array[:a, :b], reason => 'permanent', dry_run => true), 1::bigint, 'both conditions');
select is(workq.redrive('q', ids => '{}', dry_run => true), 0::bigint, 'no ids, none');
select is((select count(*) from workq.dead_letters('q')), 4::bigint, 'dry_run changes nothing');
select is((select count(*) from workq.delivery), 0::bigint, 'nothing at all');

-- One, whole.
select is(workq.redrive('q', ids => array[:a]), 1::bigint, 'one by its id');
select is((select to_jsonb(g) - '{visible_at,enqueued_at,expires_at}'::text[] from workq.get('q', :a) g), jsonb_build_object('id', :a, 'queue', 'q', 'state', 'ready', 'attempt', 0, 'max_attempts', 7, 'lease', null,
  'received_at', null, 'finished_at', null, 'priority', 1, 'worker', null, 'status', null, 'result', null, 'reason', null, 'error', null, 'kind', 'exhausted', 'headers', '{"h": 0}'::jsonb,
  'payload', 0, 'body', '\x00', 'content_type', 'c0'), 'the same message under its old id, attempt 0');
select ok(expires_at - clock_timestamp() between '59 min' and '1 hour', 'with a fresh ttl') from workq.get('q', :a);
select is((select id from workq.dead_letters('q') where id = :a), null, 'it is no dead letter any more');
select id, lease, attempt, payload, body from workq.receive('q') \gset r_
select is((:r_id::bigint, :r_attempt, :'r_payload'::jsonb, :'r_body'::bytea), (:a::bigint, 1, '0'::jsonb, '\x00'::bytea), 'received whole');
select is(workq.fail('q', :a, :r_lease, 'again', permanent => true), 'dead', 'and dead again');
select is((select (error, reason) from workq.dead_letters('q') where id = :a), ('again'::text, 'permanent'::text), 'of what it died of the last time');
select is((select array_agg(outcome order by finished_at) from workq.history('q', :a)), '{dead,dead}', 'history knows both');

-- The oldest first.
update workq.dead_letter set died_at = clock_timestamp() - message_id * interval '1 s';
select is(workq.redrive('q', max_messages => 1), 1::bigint, 'one');
select is((select array_agg(id) from workq.peek('q')), array[:d::bigint], 'the oldest first');
select is(workq.redrive('q', reason => 'expired'), 1::bigint, 'one of a reason');
select is((select array_agg(id order by id) from workq.peek('q')), array[:c, :d]::bigint[], 'that one');

-- To another queue.
select is(workq.redrive('q', 'other'), 2::bigint, 'to another queue');
select is((select array_agg(id order by id) from workq.peek('other')), array[:a, :b]::bigint[], 'all that were left');
select is_empty($$ select * from workq.dead_letters('q') $$, 'nothing is left');
select ok(expires_at - clock_timestamp() between '119 min' and '2 hours', 'with the ttl of the other queue') from workq.get('other', :a);
select is((workq.get('q', :a)).state, 'dead', 'in q it died');

-- A collision stays where it is, and is not counted (promise 11).
select workq.create_queue('s') as s, workq.create_queue('t') as t \gset
select array_agg(r.id order by r.id) as ids from workq.enqueue_many('s', kinds => '{waiting,dead,free}') r \gset
create temp table s as select * from workq.receive('s', 3);
select is((select count(*) from workq.fail_many('s', (select array_agg(id) from s), (select array_agg(lease) from s), permanents => '{t,t,t}') where outcome = 'dead'), 3::bigint, 'three die in s');
insert into workq.delivery (message_id, created_at, visible_at, queue_id, priority)
select id, enqueued_at, clock_timestamp(), (select id from workq.queue where name = 't'), 5 from s where kind = 'waiting';
insert into workq.dead_letter (queue_id, message_id, died_at, reason, attempt, priority, enqueued_at)
select (select id from workq.queue where name = 't'), id, clock_timestamp(), 'expired', 1, 5, enqueued_at from s where kind = 'dead';
select is(workq.redrive('s', 't', dry_run => true), 1::bigint, 'dry_run does not count collisions');
select is(workq.redrive('s', 't', max_messages => 1), 1::bigint, 'collisions do not use up max_messages');
select is((select array_agg(kind order by id) from workq.dead_letters('s')), '{waiting,dead}', 'they stay dead letters where they were');
select is(workq.redrive('s', 't'), 0::bigint, 'and are not counted');
select is((select reason from workq.dead_letters('t')), 'expired', 'what is dead there is untouched');

-- A message whose partition is gone comes back from its dead letter.
delete from workq.message where id in (select id from s);
select is(workq.redrive('s'), 2::bigint, 'without its message');
select is((select array_agg(kind order by id) from workq.receive('s', 10)), '{waiting,dead}', 'the dead letter has its own copy');

select * from finish();
rollback;
