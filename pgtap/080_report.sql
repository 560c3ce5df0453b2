-- Progress: report.
begin;
select plan(25);

select is(
  (select format('(%s) -> %s %s', pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid), p.provolatile)
   from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.proname = f.name),
  f.signature, 'signature of ' || f.name)
from (values
  ('report', '(queue text, id bigint, lease bigint, status jsonb) -> text v')
) f (name, signature);
select workq.create_queue('q') as q \gset
select throws_ok(format('select workq.report(''q'', %s, ''1'')', a), '22023', null, 'null where it may not be: ' || a) from unnest(array['null, 1', '1, null']) a;
select throws_ok('select workq.report(''nope'', 1, 1, ''1'')', 'WQ001', null, 'WQ001');
select is(workq.report('q', 1, 1, '1'), 'gone', 'a message that never was: gone');

select (workq.enqueue('q')).id as id \gset e_
select is(workq.report('q', :e_id, 1, '1'), 'stale', 'a message that nobody has');
select lease, lease_until from workq.receive('q') \gset a_
select is(workq.report('q', :e_id, :a_lease, '{"done": 3}'), 'reported');
select is((workq.get('q', :e_id)).status, '{"done": 3}', 'get shows it');
select is((select (lease, visible_at) from workq.delivery), (:a_lease::bigint, :'a_lease_until'::timestamptz), 'the lease is as it was');
select is(workq.report('q', :e_id, :a_lease + 1, '{"done": 4}'), 'stale', 'another lease number');
select is((workq.get('q', :e_id)).status, '{"done": 3}', 'changes nothing');
select is(workq.report('q', :e_id, :a_lease, null), 'reported', 'null takes it back');
select is((workq.get('q', :e_id)).status, null, 'and get shows none');
update workq.delivery set visible_at = clock_timestamp() - interval '1 day';
select is(workq.report('q', :e_id, :a_lease, '{"done": 5}'), 'reported', 'works after the deadline as long as nobody received it since');
update workq.delivery set visible_at = clock_timestamp();
select lease from workq.receive('q') \gset b_
select is((workq.get('q', :e_id)).status, null, 'the next receive clears it');
select is(workq.report('q', :e_id, :a_lease, '{"done": 6}'), 'stale', 'received again: stale');

select is(octet_length(to_jsonb(repeat('x', 65534))::text), 65536, 'a status of 64 KiB');
select is(workq.report('q', :e_id, :b_lease, to_jsonb(repeat('x', 65534))), 'reported');
select is((workq.get('q', :e_id)).status = to_jsonb(repeat('x', 65534)), true, 'is kept whole');
select is(workq.report('q', :e_id, :b_lease, to_jsonb(repeat('x', 65535))), 'reported', 'a byte more');
select is((workq.get('q', :e_id)).status -> 'cut', 'true', 'is cut with a mark');
create temp table compressed as select jsonb_build_object('a', repeat('x', 500000)) as status;
select is(workq.report('q', :e_id, :b_lease, status), 'reported', 'one that a table holds compressed') from compressed;
select cmp_ok(octet_length((workq.get('q', :e_id)).status::text), '<', 70000, 'is cut by its full size');

select is(workq.ack('q', :e_id, :b_lease), 'acked');
select is(workq.report('q', :e_id, :b_lease, '1'), 'gone', 'finished: gone');

select * from finish();
rollback;
