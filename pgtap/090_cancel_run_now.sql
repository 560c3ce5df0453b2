-- By hand: cancel, run_now.
begin;
select plan(43);

select is(
  (select format('(%s) -> %s %s', pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid), p.provolatile)
   from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.proname = f.name),
  f.signature, 'signature of ' || f.name)
from (values
  ('cancel', '(queue text, id bigint) -> text v'),
  ('run_now', '(queue text, id bigint) -> boolean v')
) f (name, signature);
select workq.create_queue('q') as q, workq.create_queue('other') as other \gset
select throws_ok('select workq.cancel(''q'', null)', '22023', null, 'cancel: null id');
select throws_ok('select workq.run_now(''q'', null)', '22023', null, 'run_now: null id');
select throws_ok('select workq.cancel(''nope'', 1)', 'WQ001', null, 'cancel: WQ001');
select throws_ok('select workq.run_now(''nope'', 1)', 'WQ001', null, 'run_now: WQ001');

-- cancel.
select is(workq.cancel('q', 9223372036854775807), 'gone', 'a message that never was');
select (workq.enqueue('q')).id as id \gset a_
select is(workq.cancel('other', :a_id), 'gone', 'another queue');
select is(workq.cancel('q', :a_id), 'cancelled', 'a waiting one');
select is(workq.cancel('q', :a_id), 'gone', 'once');
select is((workq.get('q', :a_id)).state, 'cancelled', 'get says cancelled');
select is((select array_agg(row(attempt, outcome, lease)::text) from workq.history('q', :a_id)), array[row(0, 'cancelled', null::bigint)::text], 'history: cancelled');
select (workq.enqueue('q', delay => '1 hour')).id as id \gset b_
select is(workq.cancel('q', :b_id), 'cancelled', 'a delayed one');
select (workq.enqueue('q')).id as id \gset c_
select lease from workq.receive('q', worker => 'w') \gset c_
select is(workq.cancel('q', :c_id), 'revoked', 'a leased one');
select is(workq.ack('q', :c_id, :c_lease), 'gone', 'its worker is told: ack');
select is(workq.fail('q', :c_id, :c_lease), 'gone', 'its worker is told: fail');
select is(workq.extend('q', :c_id, :c_lease), null, 'its worker is told: extend');
select is(workq.release('q', :c_id, :c_lease), 'gone', 'its worker is told: release');
select is(workq.report('q', :c_id, :c_lease, '1'), 'gone', 'its worker is told: report');
select is((select array_agg(row(attempt, outcome, lease, worker)::text) from workq.history('q', :c_id)), array[row(1, 'cancelled', :c_lease, 'w')::text], 'history has its attempt');
select (workq.enqueue('q')).id as id \gset d_
select lease from workq.receive('q') \gset d_
update workq.delivery set visible_at = clock_timestamp();
select is(workq.cancel('q', :d_id), 'cancelled', 'a lease that ran out is waiting');
select (workq.enqueue('q')).id as id \gset e_
select lease from workq.receive('q') \gset e_
select is(workq.fail('q', :e_id, :e_lease, permanent => true), 'dead');
select is(workq.cancel('q', :e_id), 'gone', 'a dead letter is gone');
select is((select count(*) from workq.dead_letters('q')), 1::bigint, 'and stays');
select is_empty($$ select * from workq.receive('q', 10) $$, 'nothing is left');

-- run_now.
select is(workq.run_now('q', 9223372036854775807), false, 'a message that never was');
select is(workq.run_now('q', :e_id), false, 'a dead letter');
select (workq.enqueue('q', delay => '1 hour', ttl => '1 day')).id as id \gset f_
select is(workq.run_now('other', :f_id), false, 'another queue');
select is(workq.run_now('q', :f_id), true, 'a delayed one');
select ok(expires_at - clock_timestamp() between '23 hours 59 min' and '1 day', 'its ttl counts from now: that is when it first becomes visible') from workq.get('q', :f_id);
select is(workq.run_now('q', :f_id), false, 'once: then it is ready');
select id, lease, attempt from workq.receive('q') \gset r_
select is(:r_id::bigint, :f_id::bigint, 'received');
select is(workq.run_now('q', :f_id), false, 'a leased one');
select is(workq.fail('q', :f_id, :r_lease, retry_in => '1 hour'), 'retry');
select expires_at from workq.get('q', :f_id) \gset f_
select is(workq.run_now('q', :f_id), true, 'a backing-off one');
select is((workq.get('q', :f_id)).expires_at, :'f_expires_at'::timestamptz, 'keeps its ttl');
select id, lease, attempt from workq.receive('q') \gset r_
select is(:r_attempt, 2, 'and its attempts');
select is(workq.ack('q', :f_id, :r_lease), 'acked');
select is(workq.run_now('q', :f_id), false, 'a finished one');

-- A message that was visible before keeps its ttl, though release gave the attempt back.
select workq.create_queue('t', ttl => '30 min') as t, (workq.enqueue('t')).id as id \gset t_
select lease from workq.receive('t') \gset t_
select is(workq.release('t', :t_id, :t_lease, '1 hour'), 'released');
select expires_at from workq.get('t', :t_id) \gset t_
select is(workq.run_now('t', :t_id), true, 'a released one with a delay');
select is((workq.get('t', :t_id)).expires_at, :'t_expires_at'::timestamptz, 'its ttl counts from when it first became visible');
select is((select id from workq.receive('t')), :t_id::bigint, 'and it is received');

select * from finish();
rollback;
