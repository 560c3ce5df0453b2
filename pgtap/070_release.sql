-- Giving back: release, release_many.
begin;
select plan(44);

select is(
  (select format('(%s) -> %s %s', pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid), p.provolatile)
   from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.proname = f.name),
  f.signature, 'signature of ' || f.name)
from (values
  ('release', '(queue text, id bigint, lease bigint, delay interval) -> text v'),
  ('release_many', '(queue text, ids bigint[], leases bigint[], delays interval[]) -> SETOF workq.settled v')
) f (name, signature);
select workq.create_queue('q', max_attempts => 2) as q \gset
select throws_ok(format('select workq.release(''q'', %s)', a), '22023', null, 'out of range: ' || a) from unnest(array[
  'null, 1', '1, null', '1, 1, ''-1 s''', '1, 1, ''366 days''']) a;
select throws_ok('select workq.release(''nope'', 1, 1)', 'WQ001', null, 'WQ001');
select is(workq.release('q', 1, 1), 'gone', 'a message that never was: gone');

select (workq.enqueue('q')).id as id \gset e_
select is(workq.release('q', :e_id, 1), 'stale', 'a message that nobody has');
select lease from workq.receive('q', worker => 'w') \gset a_
select is(workq.release('q', :e_id, :a_lease + 1), 'stale', 'another lease number');
select is((select lease from workq.delivery), :a_lease::bigint, 'changes nothing');
select is(workq.release('q', :e_id, :a_lease), 'released');
select is((select (attempt, lease is null, visible_at <= clock_timestamp()) from workq.delivery), (0, true, true), 'the attempt is given back, receivable at once');
select is(workq.release('q', :e_id, :a_lease), 'stale', 'twice: it waits');
select is((select array_agg(row(attempt, outcome, lease, worker)::text) from workq.history('q', :e_id)), array[row(1, 'released', :a_lease, 'w')::text], 'history: released');
select lease, attempt from workq.receive('q') \gset b_
select is(:b_attempt, 1, 'received again: the first attempt');
select is(workq.ack('q', :e_id, :a_lease), 'stale', 'the released lease is worth nothing');
select is(workq.release('q', :e_id, :b_lease, '1 hour'), 'released');
select ok(visible_at - clock_timestamp() between '59 min' and '1 hour', 'with a delay') from workq.delivery;
select is((workq.get('q', :e_id)).state, 'delayed', 'no attempt counts, so it is delayed');
update workq.delivery set visible_at = clock_timestamp();
select lease, attempt from workq.receive('q') \gset c_
update workq.delivery set visible_at = clock_timestamp() - interval '1 day';
select is(workq.release('q', :e_id, :c_lease), 'released', 'works after the deadline as long as nobody received it since');
-- However often it is released, no attempt is used up.
do $$ declare r workq.received; begin
  for i in 1..20 loop
    update workq.delivery set visible_at = clock_timestamp();
    select * into r from workq.receive('q');
    perform workq.release('q', r.id, r.lease);
  end loop;
end $$;
select is((select attempt from workq.receive('q')), 1, 'released twenty times: still the first attempt of two');
update workq.delivery set attempt = 0;
select is(workq.release('q', :e_id, lease), 'released', 'an attempt of 0') from workq.delivery;
select is((select attempt from workq.delivery), 0, 'stays 0');
update workq.delivery set visible_at = clock_timestamp();
select lease from workq.receive('q') \gset d_
select is(workq.ack('q', :e_id, :d_lease), 'acked');
select is(workq.release('q', :e_id, :d_lease), 'gone', 'finished: gone');

-- history failures keeps no releases.
select workq.create_queue('hf', history => 'failures') as hf \gset
select (workq.enqueue('hf')).id as id \gset f_
select lease from workq.receive('hf') \gset f_
select is(workq.release('hf', :f_id, :f_lease), 'released');
select is_empty(format('select * from workq.history(''hf'', %s)', :f_id), 'history failures: no line');

-- Many, mixed, in the order given.
select workq.create_queue('m') as m \gset
select count(*) as n from workq.enqueue_many('m', kinds => '{a,b,c}') \gset
create temp table l as select id, lease, kind from workq.receive('m', 3);
create temp table outcomes as select s.ord, l.kind, s.outcome from (select array_agg(id order by kind desc) as ids, array_agg(case kind when 'b' then 1 else lease end order by kind desc) as leases from l) b
cross join lateral workq.release_many('m', b.ids || 0::bigint, b.leases || 1::bigint, '{1 hour,1 s,null,1 s}') s left join l using (id);
select is((select array_agg(row(ord, kind, outcome)::text order by ord) from outcomes),
  array[row(1, 'c', 'released')::text, row(2, 'b', 'stale')::text, row(3, 'a', 'released')::text, row(4, null::text, 'gone')::text], 'each has its own outcome, in the order given');
select is((select array_agg(kind || state order by kind) from workq.peek('m')), '{aready,bleased,cdelayed}', 'each has its own delay; null is none');
select lives_ok(format('select workq.release_many(''m'', array[%1$s,%1$s], array[%2$s,%2$s])', id, lease), 'the same lease twice') from l where kind = 'b';
select is((select array_agg(outcome) from workq.history('m', id)), '{released}', 'is one line of history (I5)') from l where kind = 'b';
select is((select attempt from workq.get('m', id)), 0, 'and one attempt given back') from l where kind = 'b';
select is_empty($$ select * from workq.release_many('m', '{}', '{}') $$, 'an empty batch');
select throws_ok(format('select workq.release_many(''m'', %s)', a), '22023', null, 'a bad batch: ' || a) from unnest(array[
  'null, ''{1}''', '''{1}'', null', '''{1,2}'', ''{1}''', '''{null}'', ''{1}''', '''{1}'', ''{null}''', '''{1}'', ''{1}'', ''{1 s,1 s}''', '''{1}'', ''{1}'', ''{-1 s}''',
  '''{{1,2}}'', ''{{1,2}}''', '''[0:0]={1}'', ''{1}''']) a;
select throws_ok($$ select workq.release_many('nope', '{1}', '{1}') $$, 'WQ001', null, 'release_many: WQ001');

select * from finish();
rollback;
