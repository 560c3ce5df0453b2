-- Pushing deadlines out: extend, extend_many.
begin;
select plan(41);

select is(
  (select format('(%s) -> %s %s', pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid), p.provolatile)
   from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.proname = f.name),
  f.signature, 'signature of ' || f.name)
from (values
  ('extend', '(queue text, id bigint, lease bigint, visibility interval) -> timestamp with time zone v'),
  ('extend_many', '(queue text, ids bigint[], leases bigint[], visibilities interval[]) -> SETOF workq.settled v')
) f (name, signature);
select workq.create_queue('q', visibility => '10 s', max_visibility => '1 hour') as q \gset
select throws_ok(format('select workq.extend(''q'', %s)', a), '22023', null, 'out of range: ' || a) from unnest(array[
  'null, 1', '1, null', '1, 1, ''0''', '1, 1, ''-1 s''', '1, 1, ''1 hour 1 ms''']) a;
select throws_ok('select workq.extend(''nope'', 1, 1)', 'WQ001', null, 'WQ001');
select is(workq.extend('q', 1, 1), null, 'a message that never was: null');

select (workq.enqueue('q')).id as id \gset e_
select is(workq.extend('q', :e_id, 1), null, 'a message that nobody has: null');
select lease, lease_until from workq.receive('q') \gset a_
select clock_timestamp() as t0 \gset
select workq.extend('q', :e_id, :a_lease, '1 hour') as until \gset
select ok(:'until'::timestamptz - '1 hour'::interval between :'t0' and clock_timestamp(), 'visibility counts from now');
select is((select visible_at from workq.delivery), :'until'::timestamptz, 'and is what it answers');
select ok(workq.extend('q', :e_id, :a_lease) - clock_timestamp() between '9 s' and '10 s', 'the visibility of the queue by default; a deadline may come nearer');
select ok(workq.extend('q', :e_id, :a_lease, '1 ms') < clock_timestamp() + interval '1 s', 'down to 1 ms');
select is((select (attempt, lease) from workq.delivery), (1, :a_lease::bigint), 'attempt and lease stay');
select is(workq.extend('q', :e_id, :a_lease + 1), null, 'another lease number: null');
update workq.delivery set visible_at = clock_timestamp() - interval '1 day';
select isnt(workq.extend('q', :e_id, :a_lease), null, 'works after the deadline as long as nobody received it since');
update workq.delivery set visible_at = clock_timestamp();
select lease, lease_until from workq.receive('q') \gset b_
select is(workq.extend('q', :e_id, :a_lease, '1 hour'), null, 'received again: null');
select is((select visible_at from workq.delivery), :'b_lease_until'::timestamptz, 'and the second lease stays as it was');
select workq.alter_queue('q', visibility_factor => 2) as q \gset
select ok(workq.extend('q', :e_id, :b_lease) - clock_timestamp() between '19 s' and '20 s', 'the second attempt extends by visibility × factor');
update workq.delivery set attempt = 10000;
select ok(workq.extend('q', :e_id, :b_lease) - clock_timestamp() between '59 min' and '1 hour', 'attempt 10,000: clamped to max_visibility');
update workq.delivery set expires_at = clock_timestamp();
select isnt(workq.extend('q', :e_id, :b_lease), null, 'the ttl never ends a valid lease');
select is(workq.ack('q', :e_id, :b_lease), 'acked');
select is(workq.extend('q', :e_id, :b_lease), null, 'finished: null');
select is((select count(*) from workq.history('q', :e_id)), 2::bigint, 'extending leaves no history');

-- Many, mixed, in the order given.
select count(*) as n from workq.enqueue_many('q', kinds => '{a,b,c}') \gset
create temp table l as select id, lease, kind from workq.receive('q', 3);
create temp table outcomes as select s.ord, l.kind, s.outcome from (select array_agg(id order by kind desc) as ids, array_agg(case kind when 'b' then 1 else lease end order by kind desc) as leases from l) b
cross join lateral workq.extend_many('q', b.ids || 0::bigint || b.ids[1], b.leases || 1::bigint || b.leases[1], '{30 min,1 s,null,1 s,30 min}') s left join l using (id);
select is((select array_agg(row(ord, kind, outcome)::text order by ord) from outcomes),
  array[row(1, 'c', 'extended')::text, row(2, 'b', 'stale')::text, row(3, 'a', 'extended')::text, row(4, null::text, 'gone')::text, row(5, 'c', 'extended')::text],
  'each has its own outcome, in the order given; who repeats himself has not lost his lease');
select ok(visible_at - clock_timestamp() between '29 min' and '30 min', 'its own visibility') from workq.delivery where message_id = (select id from l where kind = 'c');
select ok(visible_at - clock_timestamp() between '9 s' and '10 s', 'a null is the visibility of the queue') from workq.delivery where message_id = (select id from l where kind = 'a');
select ok(visible_at - clock_timestamp() between '9 s' and '10 s', 'the stale one stays as it was') from workq.delivery where message_id = (select id from l where kind = 'b');
select is_empty($$ select * from workq.extend_many('q', '{}', '{}') $$, 'an empty batch');
select throws_ok(format('select workq.extend_many(''q'', %s)', a), '22023', null, 'a bad batch: ' || a) from unnest(array[
  'null, ''{1}''', '''{1}'', null', '''{1,2}'', ''{1}''', '''{null}'', ''{1}''', '''{1}'', ''{null}''', '''{1}'', ''{1}'', ''{1 s,1 s}''', '''{1}'', ''{1}'', ''{0}''', '''{1}'', ''{1}'', ''{1 day}''',
  '''{{1,2}}'', ''{{1,2}}''', '''[0:0]={1}'', ''{1}''']) a;
select throws_ok($$ select workq.extend_many('nope', '{1}', '{1}') $$, 'WQ001', null, 'extend_many: WQ001');

select * from finish();
rollback;
