-- Looking: get, history, peek, dead_letters.
begin;
select plan(69);

select is(
  (select format('(%s) -> %s %s', pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid), p.provolatile)
   from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.proname = f.name),
  f.signature, 'signature of ' || f.name)
from (values
  ('get', '(queue text, id bigint) -> workq.message_info v'),
  ('history', '(queue text, id bigint) -> SETOF workq.attempt_info s'),
  ('peek', '(queue text, max_messages integer, state text) -> SETOF workq.message_info v'),
  ('dead_letters', '(queue text, max_messages integer, reason text, kind text) -> SETOF workq.dead_letter_info s')
) f (name, signature);
select workq.create_queue('q') as q, workq.create_queue('other') as other \gset
select throws_ok(format('select workq.%s', a), '22023', null, 'out of range: ' || a) from unnest(array['get(''q'', null)', 'history(''q'', null)', 'get(null, 1)', 'history(null, 1)',
  'peek(''q'', 0)', 'peek(''q'', 10001)', 'peek(''q'', null)', 'peek(''q'', state => ''some'')', 'peek(null)', 'dead_letters(''q'', 0)', 'dead_letters(''q'', 10001)', 'dead_letters(''q'', null)', 'dead_letters(null)']) a;
select throws_ok(format('select workq.%s', a), 'WQ001', null, 'unknown queue: ' || a) from unnest(array['get(''nope'', 1)', 'history(''nope'', 1)', 'peek(''nope'')', 'dead_letters(''nope'')']) a;

-- get, through the life of a message.
select throws_ok($$ select workq.get('q', 9223372036854775807) $$, 'WQ003', 'message not found', 'a message that never was: WQ003');
select is_empty($$ select * from workq.history('q', 9223372036854775807) $$, 'and has no history');
select id, visible_at from workq.enqueue('q', '{"n": 1}', '\x01', 'application/x', 'k', '{"h": "v"}', 3, delay => '1 hour') \gset e_
select throws_ok(format($$ select workq.get('other', %s) $$, :e_id), 'WQ003', null, 'another queue: WQ003');
select is((select to_jsonb(g) - '{visible_at,enqueued_at,expires_at}'::text[] from workq.get('q', :e_id) g), jsonb_build_object('id', :e_id, 'queue', 'q', 'state', 'delayed', 'attempt', 0, 'max_attempts', 5, 'lease', null,
  'received_at', null, 'finished_at', null, 'priority', 3, 'worker', null, 'status', null, 'result', null, 'reason', null, 'error', null, 'kind', 'k', 'headers', '{"h": "v"}'::jsonb,
  'payload', '{"n": 1}'::jsonb, 'body', '\x01', 'content_type', 'application/x'), 'delayed');
select is((select (visible_at, enqueued_at, expires_at) from workq.get('q', :e_id)), (:'e_visible_at'::timestamptz, (select created_at from workq.message), :'e_visible_at'::timestamptz + '14 days'::interval), 'its times');
update workq.delivery set visible_at = clock_timestamp();
select is((workq.get('q', :e_id)).state, 'ready', 'ready');
select lease from workq.receive('q', worker => 'w') \gset r_
select is((select (state, attempt, lease, worker, received_at is not null) from workq.get('q', :e_id)), ('leased'::text, 1, :r_lease::bigint, 'w'::text, true), 'leased');
update workq.delivery set visible_at = clock_timestamp();
select is((workq.get('q', :e_id)).state, 'ready', 'a lease that ran out: ready');
select is(workq.fail('q', :e_id, :r_lease, 'e1'), 'retry');
select is((workq.get('q', :e_id)).state, 'retrying', 'retrying');
update workq.delivery set visible_at = clock_timestamp();
select lease from workq.receive('q', worker => 'w') \gset r_
select is(workq.fail('q', :e_id, :r_lease, 'e2', permanent => true, details => '[1]'), 'dead');
select is((select (state, attempt, reason, error, payload, finished_at is not null) from workq.get('q', :e_id)), ('dead'::text, 2, 'permanent'::text, 'e2'::text, '{"n": 1}'::jsonb, true), 'dead');
select is(workq.redrive('q'), 1::bigint);
select is((select (state, attempt, reason, error) from workq.get('q', :e_id)), ('ready'::text, 0, null::text, null::text), 'redriven: ready');
select lease from workq.receive('q', worker => 'w2') \gset r_
select is(workq.ack('q', :e_id, :r_lease, '{"r": 1}'), 'acked');
select is((select (state, attempt, result, payload, worker, finished_at is not null) from workq.get('q', :e_id)), ('acked'::text, 1, '{"r": 1}'::jsonb, '{"n": 1}'::jsonb, 'w2'::text, true), 'acked, with its result');
select is((select array_agg(row(attempt, outcome, reason, error, details, result, started_at <= finished_at)::text) from workq.history('q', :e_id)), array[
  row(1, 'retry', null::text, 'e1', null::jsonb, null::jsonb, true)::text, row(2, 'dead', 'permanent', 'e2', '[1]'::jsonb, null::jsonb, true)::text, row(1, 'acked', null::text, null::text, null::jsonb, '{"r": 1}'::jsonb, true)::text],
  'history: the first first');
select is_empty(format($$ select * from workq.history('other', %s) $$, :e_id), 'nothing of it in another queue');

-- However it ended, a finished message is never shown as waiting.
create function pg_temp.one(queue text) returns workq.received language plpgsql as $$
declare
  r workq.received;
begin
  perform workq.enqueue(one.queue);
  select * into r from workq.receive(one.queue);
  return r;
end $$;
select workq.create_queue('hf', history => 'failures') as hf \gset
select id, lease from pg_temp.one('hf') \gset f_
select is(workq.fail('hf', :f_id, :f_lease, retry_in => '0'), 'retry');
select lease from workq.receive('hf') \gset f_
select is(workq.ack('hf', :f_id, :f_lease), 'acked');
select is((workq.get('hf', :f_id)).state, 'finished', 'history failures: retried, then acked: finished');
select id, lease from pg_temp.one('q') \gset f_
select is(workq.fail('q', :f_id, :f_lease, retry_in => '0'), 'retry');
select is(workq.purge_queue('q'), 1::bigint);
select matches((workq.get('q', :f_id)).state, '^(purged|finished)$', 'retried, then purged');
select id, lease from pg_temp.one('q') \gset f_
select is(workq.release('q', :f_id, :f_lease), 'released');
select is(workq.purge_queue('q'), 1::bigint);
select matches((workq.get('q', :f_id)).state, '^(purged|finished)$', 'released, then purged');
select id, lease from pg_temp.one('hf') \gset f_
update workq.delivery set visible_at = clock_timestamp();
select lease from workq.receive('hf') \gset f_
select is(workq.ack('hf', :f_id, :f_lease), 'acked');
select is((workq.get('hf', :f_id)).state, 'finished', 'history failures: timed out, then acked: finished');

-- A finished message whose row is gone, and one of which nothing is left.
delete from workq.message where id = :e_id;
select is((select (state, result, payload) from workq.get('q', :e_id)), ('acked'::text, '{"r": 1}'::jsonb, null::jsonb), 'the history outlives the message');
delete from workq.attempt where message_id = :e_id;
select throws_ok(format($$ select workq.get('q', %s) $$, :e_id), 'WQ003', null, 'past both retentions: WQ003');

-- peek: the order of receive, by state, and it changes nothing.
select workq.create_queue('p') as p \gset
select count(*) as n from workq.enqueue_many('p', kinds => '{leased,ready5,ready0,delayed,retrying,lapsed}', priorities => '{4,5,0,5,5,9}') \gset
update workq.delivery d set visible_at = visible_at + case m.kind when 'leased' then interval '1 hour' when 'delayed' then '2 hours' when 'retrying' then '3 hours' else '0' end,
  attempt = case when m.kind in ('leased', 'retrying', 'lapsed') then 1 else 0 end, lease = case when m.kind in ('leased', 'lapsed') then 1 end
from workq.message m where m.id = d.message_id and d.queue_id = (select id from workq.queue where name = 'p');
create temp table before as select * from workq.delivery;
select is((select array_agg(kind || ':' || state order by ord) from (select *, row_number() over () as ord from workq.peek('p')) p),
  '{ready0:ready,leased:leased,ready5:ready,delayed:delayed,retrying:retrying,lapsed:ready}', 'peek: all that is unfinished, by priority, then by time');
select is((select array_agg(kind) from workq.peek('p', state => s.state)), s.kinds, 'peek: ' || s.state)
from (values ('ready', '{ready0,ready5,lapsed}'::text[]), ('leased', '{leased}'), ('delayed', '{delayed}'), ('retrying', '{retrying}'), ('dead', null)) s (state, kinds);
select is((select array_agg(kind) from workq.peek('p', 2)), '{ready0,leased}', 'peek: max_messages');
select set_eq('select * from workq.delivery', 'select * from before', 'peek changes nothing');
select is((select array_agg(kind) from workq.receive('p', 10)), '{ready0,ready5,lapsed}', 'receive goes in the same order');
select is_empty($$ select * from workq.peek('other') $$, 'peek of an empty queue');

-- dead_letters: the latest first.
select workq.create_queue('d') as d \gset
select count(*) as n from workq.enqueue_many('d', kinds => '{a,b,c}') \gset
select count(*) as n from (select workq.fail('d', id, lease, 'e', permanent => kind <> 'c') from workq.receive('d', 3)) f \gset
update workq.delivery set expires_at = clock_timestamp(), visible_at = clock_timestamp() where queue_id = (select id from workq.queue where name = 'd');
select is_empty($$ select * from workq.receive('d') $$, 'c expires');
update workq.dead_letter set died_at = clock_timestamp() - case kind when 'b' then interval '0' when 'a' then '1 hour' else '2 hours' end;
select is((select array_agg(kind) from workq.dead_letters('d')), '{b,a,c}', 'dead_letters: the latest first');
select is((select array_agg(kind) from workq.dead_letters('d', 2)), '{b,a}', 'max_messages');
select is((select array_agg(kind) from workq.dead_letters('d', reason => 'permanent')), '{b,a}', 'of a reason');
select is((select array_agg(reason) from workq.dead_letters('d', kind => 'c')), '{expired}', 'of a kind');
select is_empty($$ select * from workq.dead_letters('d', reason => 'permanent', kind => 'c') $$, 'both conditions');
select is((select array_agg(kind) from workq.peek('d', state => 'dead')), '{b,a,c}', 'peek shows them too');

select * from finish();
rollback;
