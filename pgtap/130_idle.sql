-- About to sleep: idle.
begin;
select plan(28);

select is(
  (select format('(%s) -> %s %s', pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid), p.provolatile)
   from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.proname = f.name),
  f.signature, 'signature of ' || f.name)
from (values
  ('idle', '(queue text) -> workq.wakeup v')
) f (name, signature);
select throws_ok($$ select workq.idle('nope') $$, 'WQ001', null, 'WQ001');
select throws_ok($$ select workq.idle(null) $$, '22023', null, 'a null queue');

select workq.create_queue('q') as q \gset
-- A search for the next due time that took long rests before the next: here it must not.
create function pg_temp.idle(queue text) returns workq.wakeup language plpgsql as $$
begin
  perform setval(q.next_due_look, 1) from workq.queue q where q.name = idle.queue;
  return workq.idle(queue);
end $$;
create function pg_temp.seconds(queue text) returns numeric language sql as $$
  select round(extract(epoch from (pg_temp.idle(queue)).next_due - clock_timestamp()))
$$;
select is((workq.idle('q')).channel, 'workq.q', 'the channel');
select cmp_ok(octet_length((workq.idle((workq.create_queue(repeat('a', 47))).queue)).channel), '<=', 63, 'the longest name makes a channel that LISTEN takes');
select ok(pg_temp.seconds('q') between 30 and 60, 'nothing due: at most 60 s');
select ok(pg_sequence_last_value(sleepers) between (extract(epoch from clock_timestamp()) * 1000000)::bigint and (extract(epoch from clock_timestamp() + interval '60 s') * 1000000)::bigint,
  'senders see that somebody sleeps') from workq.queue where name = 'q';
select pg_sequence_last_value(sleepers) as mark from workq.queue where name = 'q' \gset
select isnt((pg_temp.idle('q')).next_due, null);
select is(pg_sequence_last_value(sleepers), :mark::bigint, 'the mark is not written anew while it is fresh') from workq.queue where name = 'q';
select setval(sleepers, (extract(epoch from clock_timestamp() + interval '29 s') * 1000000)::bigint) as mark from workq.queue where name = 'q' \gset
select ok(pg_temp.seconds('q') between 50 and 60, 'and when half of it is gone, it is');
select setval(sleepers, (extract(epoch from clock_timestamp() + interval '1 day') * 1000000)::bigint) as mark from workq.queue where name = 'q' \gset
select ok(pg_temp.seconds('q') between 50 and 60, 'a mark a day ahead was left by a clock that was stepped back: promise no more than 60 s');
select cmp_ok((pg_temp.idle('q')).next_due, '<=', to_timestamp(pg_sequence_last_value(sleepers) / 1000000.0) + interval '1 ms', 'next_due is never later than notifications are promised') from workq.queue where name = 'q';

-- The next thing due.
select (workq.enqueue('q', delay => '20 s')).visible_at \gset d_
select is((pg_temp.idle('q')).next_due, :'d_visible_at'::timestamptz, 'a delay that ends');
select (workq.enqueue('q', delay => '10 s', priority => 10)).visible_at \gset d_
select is((pg_temp.idle('q')).next_due, :'d_visible_at'::timestamptz, 'of any priority');
select (workq.enqueue('q', delay => '1 day')).id \gset d_
select cmp_ok((pg_temp.idle('q')).next_due, '<', clock_timestamp() + interval '11 s', 'the first of them');
select (workq.enqueue('q')).id as id \gset e_
select cmp_ok((pg_temp.idle('q')).next_due, '<=', clock_timestamp(), 'something to receive: now');
select lease, lease_until from workq.receive('q', visibility => '5 s') \gset r_
select is((pg_temp.idle('q')).next_due, :'r_lease_until'::timestamptz, 'a lease that ends');
select is(workq.fail('q', :e_id, :r_lease, retry_in => '3 s'), 'retry');
select is((pg_temp.idle('q')).next_due, visible_at, 'a backoff that ends') from workq.get('q', :e_id);

-- Paused: nothing is due.
select workq.pause_queue('q') as q \gset
select ok(pg_temp.seconds('q') between 30 and 60, 'paused: nothing is due');
select workq.resume_queue('q') as q \gset
select ok(pg_temp.seconds('q') between 0 and 3, 'resumed: as before');

-- notify off: look every second.
select workq.create_queue('n', notify => false) as n \gset
select ok((pg_temp.idle('n')).next_due - clock_timestamp() between '0' and '1 s', 'notify off: within a second');
select is(pg_sequence_last_value(sleepers), null, 'and no mark') from workq.queue where name = 'n';

-- Quiet: a woken receiver with room for more looks again 10 ms later; until then nobody notifies.
select workq.create_queue('w') as w \gset
select workq.idle('w') as w, workq.enqueue('w') as e \gset
select count(*) as n from workq.receive('w', 10) \gset
select ok(pg_sequence_last_value(quiet) is not null, 'a receiver that was woken and has room for more stamps quiet') from workq.queue where name = 'w';
select setval(quiet, (extract(epoch from clock_timestamp() + interval '9 ms') * 1000000)::bigint) as quiet from workq.queue where name = 'w' \gset
select setval(quiet, (extract(epoch from clock_timestamp() + interval '1 day') * 1000000)::bigint) as quiet from workq.queue where name = 'w' \gset
select ok(pg_temp.seconds('w') > 10, 'a quiet time a day ahead counts as none');

-- A commit that was late by more than the floor, and just after a glance and a look: receive misses it once,
-- idle finds it, and the receive that follows idle gets it.
select workq.create_queue('late') as late, (workq.enqueue('late')).id as id \gset l_
update workq.delivery set visible_at = visible_at - interval '5 seconds' where message_id = :l_id;
select setval(floor, (extract(epoch from clock_timestamp() - interval '100 ms') * 1000000)::bigint) as floor,
  setval(next_glance, (extract(epoch from clock_timestamp() + interval '20 s') * 1000000)::bigint) as glance,
  setval(next_look, (extract(epoch from clock_timestamp() + interval '20 s') * 1000000)::bigint) as look
from workq.queue where name = 'late' \gset
select is_empty($$ select * from workq.receive('late') $$, 'receive does not look below the floor between two glances');
select ok(pg_temp.seconds('late') <= 0, 'idle finds what committed late');
select is((select id from workq.receive('late')), :l_id::bigint, 'and so does the receive after it');

select * from finish();
rollback;
