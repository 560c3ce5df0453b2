-- Settling with fail, fail_many.
begin;
select plan(88);

select is(
  (select format('(%s) -> %s %s', pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid), p.provolatile)
   from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.proname = f.name),
  f.signature, 'signature of ' || f.name)
from (values
  ('fail', '(queue text, id bigint, lease bigint, error text, retry_in interval, permanent boolean, details jsonb) -> text v'),
  ('fail_many', '(queue text, ids bigint[], leases bigint[], errors text[], retry_ins interval[], permanents boolean[], details jsonb[]) -> SETOF workq.settled v')
) f (name, signature);
select workq.create_queue('q', retry_delays => '{10 s,20 s,40 s}', retry_jitter => 0, max_attempts => 5) as q \gset
select throws_ok(format('select workq.fail(''q'', %s)', a), '22023', null, 'out of range: ' || a) from unnest(array[
  'null, 1', '1, null', '1, 1, retry_in => ''-1 s''', '1, 1, retry_in => ''366 days''', '1, 1, permanent => null']) a;
select throws_ok('select workq.fail(''nope'', 1, 1)', 'WQ001', null, 'WQ001');

-- Five attempts: the nth failure waits the nth of the delays, the last repeats; the fifth is the end.
select (workq.enqueue('q', '{"n": 1}', '\x01', 'application/x', 'k', '{"h": "v"}', 3)).id as id \gset e_
create temp table leases (n int, lease bigint);
create function pg_temp.fail_once(error text) returns text language plpgsql as $$
declare
  r workq.received;
  v_outcome text;
  v_wait interval;
begin
  update workq.delivery set visible_at = clock_timestamp();
  select * into r from workq.receive('q', worker => 'w');
  insert into leases values (r.attempt, r.lease);
  v_outcome := workq.fail('q', r.id, r.lease, error, details => '{"d": 1}');
  select d.visible_at - (select max(a.finished_at) from workq.attempt a) into v_wait from workq.delivery d;
  return v_outcome || coalesce(' ' || round(extract(epoch from v_wait)), '');
end $$;
select is(pg_temp.fail_once('e' || n), e, 'failure ' || n) from (values (1, 'retry 10'), (2, 'retry 20'), (3, 'retry 40'), (4, 'retry 40'), (5, 'dead')) v (n, e);
select is(workq.fail('q', :e_id, lease), 'gone', 'and then it is gone') from leases where n = 5;
select is((select to_jsonb(l) - '{died_at,enqueued_at}'::text[] from workq.dead_letters('q') l), jsonb_build_object('id', :e_id, 'reason', 'attempts_exhausted', 'attempt', 5, 'max_attempts', 5,
  'priority', 3, 'error', 'e5', 'details', '{"d": 1}'::jsonb, 'kind', 'k', 'headers', '{"h": "v"}'::jsonb, 'payload', '{"n": 1}'::jsonb, 'body', '\x01', 'content_type', 'application/x'),
  'one dead letter, with its own copy of the message');
select is((select array_agg(row(attempt, outcome, reason, worker, error, details)::text) from workq.history('q', :e_id)),
  (select array_agg(row(n, case n when 5 then 'dead' else 'retry' end, case n when 5 then 'attempts_exhausted' end, 'w', 'e' || n, '{"d": 1}'::jsonb)::text order by n) from generate_series(1, 5) n),
  'history: five attempts, each with its error');
select is((select array_agg(lease) from workq.history('q', :e_id)), (select array_agg(lease order by n) from leases), 'and its lease');

-- Fencing.
select (workq.enqueue('q')).id as id \gset e_
select lease from workq.receive('q') \gset a_
select is(workq.fail('q', :e_id, :a_lease + 1), 'stale', 'another lease number');
update workq.delivery set visible_at = clock_timestamp();
select lease from workq.receive('q') \gset b_
select is(workq.fail('q', :e_id, :a_lease), 'stale', 'received again: stale');
select is((select lease from workq.delivery), :b_lease::bigint, 'and nothing changed');
update workq.delivery set visible_at = clock_timestamp() - interval '1 day';
select is(workq.fail('q', :e_id, :b_lease, retry_in => '1 hour'), 'retry', 'a late fail works as long as nobody received it since');
select ok(visible_at - clock_timestamp() between '59 minutes' and '1 hour', 'retry_in goes before retry_delays') from workq.delivery;
select is((select (lease is null, attempt) from workq.delivery), (true, 2), 'no lease any more, the attempt stays counted');
select is(workq.fail('q', :e_id, :b_lease), 'stale', 'twice: it waits, it is not leased');
select is((workq.get('q', :e_id)).state, 'retrying', 'get says retrying');
update workq.delivery set visible_at = clock_timestamp();
select lease from workq.receive('q') \gset b_
select is(workq.fail('q', :e_id, :b_lease, retry_in => '0'), 'retry', 'a retry_in of 0');
select is((select attempt from workq.receive('q')), 4, 'is receivable at once');
select is(workq.fail('q', :e_id, lease, 'bad input', permanent => true), 'dead', 'permanent: dead, whatever attempts are left') from workq.delivery;
select is((select (reason, error, attempt) from workq.dead_letters('q') where id = :e_id), ('permanent'::text, 'bad input'::text, 4), 'with its reason');

-- Past its ttl there is no retry.
select (workq.enqueue('q')).id as id \gset e_
select lease from workq.receive('q') \gset e_
update workq.delivery set expires_at = clock_timestamp();
select is(workq.fail('q', :e_id, :e_lease), 'dead', 'failed past its ttl: dead');
select is((select reason from workq.dead_letters('q') where id = :e_id), 'expired', 'expired');

-- retry_delays that do not begin at 1 wait all the same.
select workq.create_queue('b', retry_delays => '[5:6]={10 s,20 s}', retry_jitter => 0) as b \gset
select (workq.enqueue('b')).id as id \gset e_
select lease from workq.receive('b') \gset e_
select is(workq.fail('b', :e_id, :e_lease), 'retry', 'retry_delays with another lower bound');
select is(g.visible_at - h.finished_at, '10 s'::interval, 'the first failure waits the first') from workq.get('b', :e_id) g, workq.history('b', :e_id) h;

-- Jitter: within its bounds, and not always the same.
select workq.create_queue('j', retry_delays => '{1000 s}', retry_jitter => 0.5) as j \gset
select count(*) as n from workq.enqueue_many('j', kinds => array_fill('x'::text, array[200])) \gset
select array_agg(id) as ids, array_agg(lease) as leases from workq.receive('j', 200) \gset
select is((select count(*) from workq.fail_many('j', :'ids', :'leases') where outcome = 'retry'), 200::bigint, '200 failures');
select cmp_ok(min(visible_at), '>=', clock_timestamp() + interval '490 s', 'jitter 0.5 of 1000 s: not before 500') from workq.delivery d where d.queue_id = (select id from workq.queue where name = 'j');
select cmp_ok(max(visible_at), '<=', clock_timestamp() + interval '1500 s', 'not after 1500') from workq.delivery d where d.queue_id = (select id from workq.queue where name = 'j');
select cmp_ok(extract(epoch from max(visible_at) - min(visible_at)), '>', 500::numeric, 'and spread out') from workq.delivery d where d.queue_id = (select id from workq.queue where name = 'j');

-- Errors and details up to 64 KiB, then cut with a mark.
select workq.create_queue('c') as c \gset
create function pg_temp.kept(error text, details jsonb) returns workq.attempt_info language plpgsql as $$
declare
  r workq.received;
  v_kept workq.attempt_info;
begin
  perform workq.enqueue('c');
  select * into r from workq.receive('c');
  perform workq.fail('c', r.id, r.lease, error, details => details, retry_in => '1 day');
  select * into v_kept from workq.history('c', r.id);
  return v_kept;
end $$;
select is((pg_temp.kept(repeat('x', 65536), null)).error = repeat('x', 65536), true, 'an error of 64 KiB is kept whole');
select is((pg_temp.kept(repeat('x', 65537), null)).error = repeat('x', 65536) || '… (cut)', true, 'a byte more: cut with a mark');
select cmp_ok(octet_length((pg_temp.kept(repeat('€', 30000), null)).error), '<=', 65536 + 16, 'bytes are counted, not characters');
select is(right((pg_temp.kept(repeat('€', 30000), null)).error, 6), ' (cut)', 'and the cut is marked');
select is((pg_temp.kept(null, to_jsonb(repeat('x', 65535)))).details ->> 'cut', 'true', 'details are cut too');
select is((pg_temp.kept('', '{}')).error, '', 'an empty error is an empty error');

-- Dead letter queue: the delivery moves, under its id, with no attempt and a fresh ttl.
select workq.create_queue('dlq', ttl => '1 hour', max_attempts => 3) as dlq, workq.create_queue('src', dead_letter_queue => 'dlq') as src \gset
select (workq.enqueue('src', '{"n": 1}', priority => 2, max_attempts => 1)).id as id \gset e_
select lease from workq.receive('src') \gset e_
select is(workq.fail('src', :e_id, :e_lease, 'e'), 'dead', 'exhausted in src');
select is_empty($$ select * from workq.dead_letters('src') $$, 'is no dead letter there');
select is((select (attempt, max_attempts, priority, payload, state) from workq.get('dlq', :e_id)), (0, 3, 2, '{"n": 1}'::jsonb, 'ready'::text), 'but a message of dlq');
select ok(expires_at - clock_timestamp() between '59 minutes' and '1 hour', 'with a fresh ttl of dlq') from workq.get('dlq', :e_id);
select is((select (outcome, reason, error) from workq.history('src', :e_id)), ('dead'::text, 'attempts_exhausted'::text, 'e'::text), 'the history of src knows');
select is((workq.get('src', :e_id)).state, 'dead', 'get of src says dead');
select id, lease from workq.receive('dlq') \gset d_
select is(:d_id::bigint, :e_id::bigint, 'received from dlq');
select is(workq.ack('src', :e_id, :d_lease), 'gone', 'a lease of dlq is none of src');
select is(workq.ack('dlq', :d_id, :d_lease), 'acked');
-- A move never collides (promise 11): unfinished there, or dead there, it stays.
select array_agg(r.id order by r.id) as ids from workq.enqueue_many('src', kinds => '{waiting,dead,free}', max_attempts => 1) r \gset
create temp table s as select * from workq.receive('src', 3);
insert into workq.delivery (message_id, created_at, visible_at, queue_id, priority)
select r.id, r.enqueued_at, clock_timestamp() + interval '1 hour', (select id from workq.queue where name = 'dlq'), 5 from s r where kind = 'waiting';
insert into workq.dead_letter (queue_id, message_id, died_at, reason, attempt, priority, enqueued_at)
select (select id from workq.queue where name = 'dlq'), r.id, clock_timestamp(), 'permanent', 1, 5, r.enqueued_at from s r where kind = 'dead';
select is((select array_agg(outcome order by ord) from workq.fail_many('src', (select array_agg(id order by id) from s), (select array_agg(lease order by id) from s))), '{dead,dead,dead}', 'three die in src');
select is((select array_agg(kind order by id) from workq.dead_letters('src')), '{waiting,dead}', 'those that are in dlq already stay dead letters of src');
select is((select array_agg(kind order by id) from workq.peek('dlq', state => 'ready')), '{free}', 'the other moves');
select is((select count(*) from workq.dead_letters('dlq')), 1::bigint, 'the dead letter there is untouched');

-- history none: a dead letter all the same.
select workq.create_queue('hn', history => 'none') as hn \gset
select (workq.enqueue('hn')).id as id \gset e_
select lease from workq.receive('hn') \gset e_
select is(workq.fail('hn', :e_id, :e_lease, 'e', permanent => true), 'dead', 'history none');
select is((select error from workq.dead_letters('hn')), 'e', 'the dead letter has its error');
select is_empty(format('select * from workq.history(''hn'', %s)', :e_id), 'but no history');
select workq.create_queue('hf', history => 'failures') as hf \gset
select (workq.enqueue('hf')).id as id \gset e_
select lease from workq.receive('hf') \gset e_
select is(workq.fail('hf', :e_id, :e_lease, 'e'), 'retry', 'history failures');
select is((select array_agg(outcome) from workq.history('hf', :e_id)), '{retry}', 'keeps a failure');

-- Many: mixed, in the order given.
select workq.create_queue('m', max_attempts => 2) as m \gset
select array_agg(r.id order by r.id) as ids from workq.enqueue_many('m', kinds => '{a,b,c,d}') r \gset
create temp table l as select id, lease, kind from workq.receive('m', 4);
update workq.delivery set attempt = 2 where message_id = (select id from l where kind = 'c');
create temp table outcomes as select s.ord, l.kind, s.outcome from (select array_agg(id order by kind desc) as ids, array_agg(case kind when 'b' then 1 else lease end order by kind desc) as leases from l) b
cross join lateral workq.fail_many('m', b.ids || 0::bigint, b.leases || 0::bigint, '{ed,ec,eb,ea,e0}', '{1 hour,2 hours,null,null,null}', '{false,null,true,true,true}', '{1,2,3,4,5}') s left join l using (id);
select is((select array_agg(row(ord, kind, outcome)::text order by ord) from outcomes), array[row(1, 'd', 'retry')::text, row(2, 'c', 'dead')::text, row(3, 'b', 'stale')::text, row(4, 'a', 'dead')::text, row(5, null::text, 'gone')::text],
  'each has its own outcome, in the order given');
select is((select array_agg(row(kind, reason, error, details)::text order by kind) from workq.dead_letters('m')), array[row('a', 'permanent', 'ea', '4'::jsonb)::text, row('c', 'attempts_exhausted', 'ec', '2'::jsonb)::text], 'reasons, errors and details are in step');
select is((select row(h.error, h.details)::text from l cross join lateral workq.history('m', l.id) h where kind = 'd'), row('ed', '1'::jsonb)::text, 'for the retry too');
select ok(d.visible_at - clock_timestamp() between '59 minutes' and '1 hour', 'and its retry_in') from workq.delivery d where d.message_id = (select id from l where kind = 'd');
select is_empty($$ select * from workq.fail_many('m', '{}', '{}') $$, 'an empty batch');
select throws_ok(format('select workq.fail_many(''m'', %s)', a), '22023', null, 'a bad batch: ' || a) from unnest(array[
  'null, ''{1}''', '''{1}'', null', '''{1,2}'', ''{1}''', '''{null}'', ''{1}''', '''{1}'', ''{null}''', '''{1}'', ''{1}'', array[]::text[]', '''{1}'', ''{1}'', ''{a,b}''',
  '''{1}'', ''{1}'', retry_ins => ''{1 s,2 s}''', '''{1}'', ''{1}'', permanents => ''{t,t}''', '''{1}'', ''{1}'', details => ''{1,2}''', '''{1}'', ''{1}'', retry_ins => ''{-1 s}''', '''{{1,2}}'', ''{{1,2}}''', '''[0:0]={1}'', ''{1}''',
  '''{1}'', ''[0:0]={1}''', '''{1}'', ''{1}'', ''[0:0]={e}''', '''{1}'', ''{1}'', retry_ins => ''[0:0]={1 s}''', '''{1}'', ''{1}'', permanents => ''[0:0]={t}''', '''{1}'', ''{1}'', details => ''[0:0]={1}''']) a;
select throws_ok($$ select workq.fail_many('nope', '{1}', '{1}') $$, 'WQ001', null, 'fail_many: WQ001');
-- One lease settles once (I5).
select count(*) as n from workq.enqueue_many('m', kinds => '{x,y}') \gset
create temp table l2 as select id, lease, kind from workq.receive('m', 2);
select lives_ok(format('select workq.fail_many(''m'', array[%1$s,%1$s], array[%2$s,%2$s], permanents => ''{f,t}'')', id, lease), 'the same lease twice') from l2 where kind = 'y';
select is((select count(*) from workq.history('m', id)), 1::bigint, 'is one line of history') from l2 where kind = 'y';
select is((select count(*) from workq.delivery d where d.message_id = id) + (select count(*) from workq.dead_letter d where d.message_id = id), 1::bigint, 'and one place') from l2 where kind = 'y';

select * from finish();
rollback;
