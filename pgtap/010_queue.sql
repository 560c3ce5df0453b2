-- Queues: create, alter, pause, resume, purge, drop, queues.
begin;
select plan(127);

select is(
  (select format('(%s) -> %s %s', pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid), p.provolatile)
   from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.proname = f.name),
  f.signature, 'signature of ' || f.name)
from (values
  ('create_queue', '(queue text, visibility interval, visibility_factor double precision, max_visibility interval, max_attempts integer, retry_delays interval[], retry_jitter double precision, ttl interval, retention interval, dead_retention interval, dead_letter_queue text, history text, keyed text, key_limit integer, clear_dead_on_ack boolean, max_in_flight integer, rate_limit integer, rate_period interval, lifo_after interval, max_payload_bytes integer, max_depth bigint, dedupe_scope text, notify boolean, paused boolean) -> workq.queue_info v'),
  ('alter_queue', '(queue text, visibility interval, visibility_factor double precision, max_visibility interval, max_attempts integer, retry_delays interval[], retry_jitter double precision, ttl interval, retention interval, dead_retention interval, dead_letter_queue text, history text, keyed text, key_limit integer, clear_dead_on_ack boolean, max_in_flight integer, rate_limit integer, rate_period interval, lifo_after interval, max_payload_bytes integer, max_depth bigint, dedupe_scope text, notify boolean, paused boolean, clear text[]) -> workq.queue_info v'),
  ('queues', '(queue text) -> SETOF workq.queue_info s'),
  ('pause_queue', '(queue text) -> workq.queue_info v'),
  ('resume_queue', '(queue text) -> workq.queue_info v'),
  ('purge_queue', '(queue text) -> bigint v'),
  ('drop_queue', '(queue text, force boolean) -> void v')
) f (name, signature);

-- Defaults, all of them.
select is(to_jsonb(workq.create_queue('q')) - 'created_at', jsonb_build_object(
  'queue', 'q', 'visibility', '00:00:30', 'visibility_factor', 1, 'max_visibility', '12:00:00', 'max_attempts', 5,
  'retry_delays', to_jsonb('{1 second,10 seconds,1 minute,10 minutes}'::interval[]), 'retry_jitter', 0.1, 'ttl', '14 days', 'retention', '7 days',
  'dead_retention', '90 days', 'dead_letter_queue', null, 'history', 'all', 'max_payload_bytes', 1048576,
  'max_depth', null, 'notify', true, 'paused', false), 'the defaults of a queue');
select ok((select created_at from workq.queues('q')) between now() and clock_timestamp(), 'created_at is the time of the call');

-- Names.
select lives_ok(format('select workq.create_queue(%L)', n), 'a good name: ' || n) from unnest(array['a', 'a.b-c_d9', repeat('a', 47)]) n;
select throws_ok(format('select workq.create_queue(%L)', n.name), '22023', 'argument out of range', 'a bad name: ' || left(coalesce(to_json(n.name)::text, 'null'), 20))
from (values (null), (''), ('A'), ('1a'), ('_a'), ('a b'), ('a''b'), ('a"b'), ('a;drop table workq.queue'), (repeat('a', 48)), (repeat('a', 10240)), (E'a\n'), ('ä')) n (name);

-- Create again.
select lives_ok($$ select workq.create_queue('q') $$, 'an existing queue, no setting: no-op');
select lives_ok($$ select workq.create_queue('q', visibility => '30 seconds', ttl => '14 days') $$, 'an existing queue, equal settings: no-op');
select lives_ok($$ select workq.create_queue('q', visibility => '0.5 minutes', ttl => '336 hours') $$, 'equal settings in other words: no-op');
select lives_ok($$ select workq.create_queue('q', paused => true) $$, 'paused is never compared');
select is((select paused from workq.queues('q')), false, 'and never changed by create_queue');
select throws_ok($$ select workq.create_queue('q', visibility => '31 seconds') $$, 'WQ008', 'queue exists with other settings', 'other settings: WQ008');
select throws_ok($$ select workq.create_queue('q', max_depth => 5) $$, 'WQ008', null, 'a setting that is null there: WQ008');
select throws_ok($$ select workq.create_queue('q', dead_letter_queue => 'a') $$, 'WQ008', null, 'another dead letter queue: WQ008');
select throws_ok($$ select workq.create_queue('q', retry_delays => '{1 second}') $$, 'WQ008', null, 'other retry_delays: WQ008');
select is((select count(*) from workq.queues()), 4::bigint, 'no queue more by all that');

-- Out of range: nothing is made.
select throws_ok(format('select workq.create_queue(''bad'', %s)', a), '22023', 'argument out of range', 'out of range: ' || a) from unnest(array[
  'visibility => ''0''', 'visibility => ''13 hours''', 'visibility_factor => 0.99', 'visibility_factor => 100.1', 'visibility_factor => ''NaN''',
  'max_visibility => ''366 days''', 'max_attempts => 0', 'retry_delays => ''{}''', 'retry_delays => ''{null}''', 'retry_delays => ''{-1 second}''',
  'retry_delays => ''{{1 second,2 seconds}}''', 'retry_jitter => 1.01', 'retry_jitter => -0.01', 'ttl => ''0''', 'ttl => ''101 years''', 'retention => ''-1 day''',
  'dead_retention => ''-1 day''', 'history => ''some''', 'max_payload_bytes => 0', 'max_payload_bytes => 268435457', 'max_depth => 0']) a;
select lives_ok(format('select workq.create_queue(%L, %s)', 'edge' || n, a), 'at the edge: ' || a) from unnest(array[
  'visibility => ''1 millisecond''', 'visibility => ''12 hours''', 'visibility_factor => 100', 'max_visibility => ''365 days''', 'max_attempts => 1',
  'retry_delays => ''{0}''', 'retry_jitter => 0', 'retry_jitter => 1', 'ttl => ''100 years''', 'retention => ''0''', 'max_payload_bytes => 268435456', 'max_depth => 1'])
  with ordinality e (a, n);
select is((select count(*) from workq.queues() where queue = 'bad'), 0::bigint, 'a queue with a bad setting is not made');
select throws_ok(format('select workq.create_queue(''bad'', %s)', a), '0A000', 'argument is not supported yet', 'not built yet: ' || a) from unnest(array[
  'keyed => ''none''', 'key_limit => 1', 'clear_dead_on_ack => false', 'max_in_flight => 1', 'rate_limit => 1', 'rate_period => ''1 second''', 'lifo_after => ''1 second''', 'dedupe_scope => ''waiting''']) a;

-- queues.
select is((select array_agg(queue) from workq.queues() where queue !~ 'edge'), array['a', 'a.b-c_d9', repeat('a', 47), 'q'], 'queues() shows all, by name');
select is((select count(*) from workq.queues('q')), 1::bigint, 'queues(name) shows one');
select throws_ok($$ select workq.queues('nope') $$, 'WQ001', 'queue does not exist', 'queues of an unknown one: WQ001');

-- alter_queue.
select is(to_jsonb(workq.alter_queue('q', visibility => '1 minute')) - 'created_at',
  (to_jsonb(workq.create_queue('same')) || '{"queue": "q", "visibility": "00:01:00"}') - 'created_at', 'alter_queue: null leaves a setting as it is');
select is((workq.alter_queue('q', max_depth => 7, ttl => '1 hour', dead_letter_queue => 'a')).max_depth, 7::bigint, 'alter_queue sets');
select is(to_jsonb(workq.alter_queue('q', clear => '{max_depth,ttl,dead_letter_queue,max_attempts}')) - 'created_at',
  (to_jsonb(workq.create_queue('same')) || '{"queue": "q", "visibility": "00:01:00", "ttl": null, "max_attempts": null}') - 'created_at', 'clear sets those named to null');
select is((workq.alter_queue('q', clear => '{}')).visibility, '1 minute'::interval, 'an empty clear clears nothing');
select throws_ok(format('select workq.alter_queue(''q'', clear => %L::text[])', c), '22023', null, 'cannot be cleared: ' || c)
from unnest(array['{visibility}', '{paused}', '{nope}', '{null}', '{max_depth,nope}']) c;
select throws_ok($$ select workq.alter_queue('nope') $$, 'WQ001', null, 'alter_queue of an unknown queue: WQ001');
select throws_ok($$ select workq.alter_queue('q', max_visibility => '10 seconds') $$, '22023', null, 'max_visibility below the visibility it has');
select throws_ok($$ select workq.alter_queue('q', keyed => 'fair') $$, '0A000', null, 'alter_queue: not built yet');

-- Dead letter queues form no ring.
select throws_ok($$ select workq.create_queue('ring', dead_letter_queue => 'ring') $$, '22023', null, 'a queue is never its own dead letter queue');
select throws_ok($$ select workq.create_queue('ring', dead_letter_queue => 'nope') $$, 'WQ001', null, 'an unknown dead letter queue: WQ001');
select lives_ok($$ select workq.create_queue('r1'), workq.create_queue('r2', dead_letter_queue => 'r1'), workq.create_queue('r3', dead_letter_queue => 'r2') $$, 'a chain of dead letter queues');
select throws_ok($$ select workq.alter_queue('r1', dead_letter_queue => 'r1') $$, '22023', null, 'no ring of one');
select throws_ok($$ select workq.alter_queue('r1', dead_letter_queue => 'r2') $$, '22023', null, 'no ring of two');
select throws_ok($$ select workq.alter_queue('r1', dead_letter_queue => 'r3') $$, '22023', null, 'no ring of three');

-- pause, resume.
select is((workq.pause_queue('q')).paused, true, 'pause_queue pauses');
select is((workq.pause_queue('q')).paused, true, 'twice is as once');
select isnt((workq.enqueue('q')).id, null, 'a paused queue takes messages');
select is_empty($$ select * from workq.receive('q') $$, 'a paused queue gives nothing');
select is((workq.resume_queue('q')).paused, false, 'resume_queue resumes');
select is((select count(*) from workq.receive('q')), 1::bigint, 'and there it is');
select throws_ok($$ select workq.pause_queue('nope') $$, 'WQ001', null, 'pause_queue: WQ001');
select throws_ok($$ select workq.resume_queue('nope') $$, 'WQ001', null, 'resume_queue: WQ001');

-- purge_queue: everything unfinished goes, dead letters and neighbours stay.
select workq.create_queue('p') as p, workq.enqueue('same') as same \gset
select (workq.enqueue('p', priority => 0)).id as dead \gset
select id, lease from workq.receive('p') \gset r_
select is(workq.fail('p', :r_id, :r_lease, permanent => true), 'dead', 'one dead letter in p');
select count(*) as n from workq.enqueue_many('p', kinds => '{a,b,c}', run_ats => array[null, null, clock_timestamp() + interval '1 day']) \gset
select id, lease from workq.receive('p') \gset r_
select is(workq.purge_queue('p'), 3::bigint, 'purge_queue counts ready, leased and delayed');
select is(workq.purge_queue('p'), 0::bigint, 'and then nothing is left');
select is(workq.ack('p', :r_id, :r_lease), 'gone', 'the worker of a purged message is told gone');
select is((select outcome from workq.history('p', :r_id)), 'purged', 'history says purged');
select is((workq.get('p', :r_id)).state, 'purged', 'get says purged');
select is((select array_agg(id) from workq.dead_letters('p')), array[:dead::bigint], 'purge keeps dead letters');
select is((select ready from workq.stats('same')), 1::bigint, 'purge leaves other queues alone');
select throws_ok($$ select workq.purge_queue('nope') $$, 'WQ001', null, 'purge_queue: WQ001');

-- drop_queue.
select throws_ok($$ select workq.drop_queue('nope') $$, 'WQ001', null, 'drop_queue: WQ001');
select throws_ok($$ select workq.drop_queue('q', null) $$, '22023', null, 'force null: 22023');
select throws_ok($$ select workq.drop_queue('same') $$, 'WQ007', 'queue is not empty', 'with a message: WQ007');
select throws_ok($$ select workq.drop_queue('p') $$, 'WQ007', null, 'with a dead letter: WQ007');
select throws_ok($$ select workq.drop_queue('r1') $$, '2BP01', null, 'the dead letter queue of another: 2BP01');
select lives_ok($$ select workq.drop_queue('r1', force => true) $$, 'with force it goes');
select is((select dead_letter_queue from workq.queues('r2')), null, 'and the other keeps its dead letters itself');
select lives_ok($$ select workq.drop_queue('edge1') $$, 'an empty queue goes without force');
select lives_ok($$ select workq.drop_queue('p', true) $$, 'a queue with dead letters goes with force');
select throws_ok($$ select workq.receive('p') $$, 'WQ001', null, 'a dropped queue is unknown');
select lives_ok($$ select workq.create_queue('p') $$, 'a dropped name may be taken again');
select is((select array[ready, dead] from workq.stats('p')), '{0,0}', 'the new one has nothing of the old');

select * from finish();
rollback;
