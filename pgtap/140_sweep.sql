-- Sweeping up: sweep.
begin;
select plan(30);

select is(
  (select format('(%s) -> %s %s', pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid), p.provolatile)
   from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.proname = f.name),
  f.signature, 'signature of ' || f.name)
from (values
  ('sweep', '(max_rows integer) -> workq.sweep_counts v')
) f (name, signature);
select throws_ok(format('select workq.sweep(%s)', a), '22023', null, 'out of range: ' || a) from unnest(array['0', '-1', '100001', 'null']) a;

-- A sweep that took long rests before the next: here it must not.
create function pg_temp.sweep(max_rows int) returns text language plpgsql as $$
begin
  perform setval('workq.sweep_due', 1);
  return (select row(s.exhausted, s.expired, s.dead_removed)::text from workq.sweep(sweep.max_rows) s);
end $$;
select is(pg_temp.sweep(1000), '(0,0,0)', 'without a queue');
select workq.create_queue('q', max_attempts => 1) as q, workq.create_queue('p', max_attempts => 1) as p \gset
select is(pg_temp.sweep(1000), '(0,0,0)', 'without a message');

-- What it takes and what it leaves.
select count(*) as n from workq.enqueue_many('q', kinds => '{ready,delayed,leased,leased_past_ttl,leased_last,timeout,timeout_last,expired,retrying_past_ttl,own,expired_leased}') \gset
update workq.delivery d set
  visible_at = clock_timestamp() + case when m.kind in ('delayed', 'leased', 'leased_past_ttl', 'leased_last', 'retrying_past_ttl') then interval '1 hour' else '0' end,
  lease = case when m.kind in ('leased', 'leased_past_ttl', 'leased_last', 'timeout', 'timeout_last', 'own', 'expired_leased') then 1 end,
  attempt = case when m.kind in ('leased_last', 'timeout_last', 'own') then 1 else 0 end,
  max_attempts = case when m.kind = 'own' then 2 end,
  expires_at = case when m.kind in ('leased_past_ttl', 'expired', 'retrying_past_ttl', 'expired_leased') then clock_timestamp() else d.expires_at end
from workq.message m where m.id = d.message_id;
select is(pg_temp.sweep(1000), '(1,3,0)', 'counts of exhausted and expired');
select is((select array_agg(kind || ':' || reason order by id) from workq.dead_letters('q')), '{timeout_last:attempts_exhausted,expired:expired,retrying_past_ttl:expired,expired_leased:expired}', 'these are dead');
select is((select array_agg(kind order by id) from workq.peek('q')), '{ready,delayed,leased,leased_past_ttl,leased_last,timeout,own}', 'and these are left: a valid lease is never ended, neither by ttl nor by attempts');
select is((select array_agg(row(kind, (select array_agg(outcome || ':' || reason) from workq.history('q', id)))::text order by id) from workq.dead_letters('q') where kind = 'timeout_last'),
  array[row('timeout_last', '{dead:attempts_exhausted}'::text[])::text], 'one line of history each');
select is(pg_temp.sweep(1000), '(0,0,0)', 'again: nothing');
select is((select count(*) from workq.dead_letters('q')), 4::bigint, 'each is dead once');

-- In a paused queue, where nobody receives.
select workq.pause_queue('p') as p, (workq.enqueue('p')).id as id \gset p_
update workq.delivery set expires_at = clock_timestamp() where message_id = :p_id;
select is(pg_temp.sweep(1000), '(0,1,0)', 'a paused queue is swept');
select is((select array_agg(id) from workq.dead_letters('p')), array[:p_id::bigint], 'its dead letter');

-- To the dead letter queue.
select workq.create_queue('dlq') as dlq, workq.create_queue('src', dead_letter_queue => 'dlq', max_attempts => 1) as src, (workq.enqueue('src')).id as id \gset s_
update workq.delivery set attempt = 1, lease = 1 where message_id = :s_id;
select is(pg_temp.sweep(1000), '(1,0,0)', 'with a dead letter queue');
select is((select (state, attempt) from workq.get('dlq', :s_id)), ('ready'::text, 0), 'it moves there');

-- Bounded: at most max_rows a call, and all in the end.
select workq.create_queue('many', max_attempts => 1) as many \gset
select count(*) as n from workq.enqueue_many('many', kinds => array_fill('x'::text, array[105])) \gset
update workq.delivery set attempt = 1, lease = 1 where queue_id = (select id from workq.queue where name = 'many');
create temp table counts as select pg_temp.sweep(10) as counts from generate_series(1, 20);
select is((select array_agg(counts || ' ' || n order by counts desc) from (select counts, count(*) as n from counts group by counts) c where counts not in ('(0,0,0)')), '{"(5,0,0) 1","(10,0,0) 10"}', 'ten a call');
select is((select dead from workq.stats('many')), 105::bigint, 'all of them once');
-- One at a time past many that are fine: it walks on from where it stopped.
select workq.create_queue('far', max_attempts => 1) as far \gset
select count(*) as n from workq.enqueue_many('far', kinds => array_fill('fine'::text, array[200])) \gset
select (workq.enqueue('far')).id \gset f_
update workq.delivery set attempt = 1, lease = 1 where message_id = :f_id;
create temp table far as select pg_temp.sweep(1) as counts from generate_series(1, 60);
select is((select dead from workq.stats('far')), 1::bigint, 'a bad one behind 200 good ones is found in bounded steps');
select is((select count(*) from far where counts <> '(0,0,0)'), 1::bigint, 'and counted once');

-- dead_retention: of each queue its own, bounded too.
select workq.create_queue('r1', dead_retention => '1 day') as r1, workq.create_queue('r2') as r2 \gset
insert into workq.dead_letter (queue_id, message_id, died_at, reason, attempt, priority, enqueued_at)
select q.id, n, clock_timestamp() - interval '2 days', 'permanent', 1, 5, clock_timestamp() from workq.queue q, generate_series(1, 5) n where q.name in ('r1', 'r2');
select is(pg_temp.sweep(3), '(0,0,3)', 'removes dead letters past dead_retention, up to max_rows');
select is(pg_temp.sweep(3), '(0,0,2)', 'and the rest');
select is((select count(*) from workq.dead_letters('r2')), 5::bigint, 'those of a queue that keeps them longer stay');
select is(pg_temp.sweep(3), '(0,0,0)', 'nothing more');

-- Whatever is in the rows (promise 12).
select workq.create_queue('odd', visibility_factor => 100) as odd, (workq.enqueue('odd')).id as id \gset o_
update workq.delivery set attempt = 2147483647, visible_at = '-infinity', expires_at = '-infinity' where message_id = :o_id;
select is(pg_temp.sweep(1000), '(1,0,0)', 'a row with infinite times');
select (workq.enqueue('odd')).id as id \gset o_
update workq.delivery set visible_at = 'infinity', expires_at = 'infinity' where message_id = :o_id;
select is(pg_temp.sweep(1000), '(0,0,0)', 'and one that is never due');
select lives_ok($$ select workq.idle('odd'), workq.receive('odd'), workq.stats('odd'), workq.peek('odd') $$, 'does not disturb the others');
update workq.delivery set visible_at = '-infinity', expires_at = null where message_id = :o_id;
select setval(next_look, 1) as look, setval(next_glance, 1) as glance from workq.queue where name = 'odd' \gset
select lives_ok($$ select workq.receive('odd') $$, 'a time of -infinity is long past');
select is((workq.get('odd', :o_id)).state, 'leased', 'and received');

select * from finish();
rollback;
