-- Settling with ack, ack_many.
begin;
select plan(55);

select is(
  (select format('(%s) -> %s %s', pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid), p.provolatile)
   from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.proname = f.name),
  f.signature, 'signature of ' || f.name)
from (values
  ('ack', '(queue text, id bigint, lease bigint, result jsonb, strict boolean) -> text v'),
  ('ack_many', '(queue text, ids bigint[], leases bigint[], results jsonb[]) -> SETOF workq.settled v')
) f (name, signature);
select is((select string_agg(a.attname, ',' order by a.attnum) from pg_attribute a where a.attrelid = 'workq.settled'::regclass and a.attnum > 0), 'ord,id,outcome', 'columns of settled');

select workq.create_queue('q') as q, workq.create_queue('other') as other \gset
select (workq.enqueue('q', '{"n": 1}')).id as id \gset e_
select throws_ok(format('select workq.ack(''nope'', %s, 1)', :e_id), 'WQ001', null, 'WQ001');
select throws_ok(format('select workq.ack(''q'', %s)', a), '22023', null, 'null where it may not be: ' || a) from unnest(array['null, 1', '1, null', '1, 1, strict => null']) a;
select is(workq.ack('q', :e_id, 0), 'stale', 'a message that nobody received');

-- Fencing.
select id, lease as lease from workq.receive('q', worker => 'w1') \gset a_
select is(workq.ack('q', :e_id, :a_lease + 1), 'stale', 'another lease number');
select is(workq.ack('q', :e_id, -1), 'stale', 'a lease number that never was');
select is(workq.ack('other', :e_id, :a_lease), 'gone', 'another queue');
select is((select lease from workq.delivery), :a_lease::bigint, 'nothing changed by that');
update workq.delivery set visible_at = clock_timestamp();
select id, lease from workq.receive('q', worker => 'w2') \gset b_
select is(workq.ack('q', :e_id, :a_lease), 'stale', 'received again: stale');
select throws_ok(format('select workq.ack(''q'', %s, %s, strict => true)', :e_id, :a_lease), 'WQ002', 'lease is lost', 'strict: WQ002');
select is((select lease from workq.delivery), :b_lease::bigint, 'the message is with the second worker still');
update workq.delivery set visible_at = clock_timestamp() - interval '1 day';
select is(workq.ack('q', :e_id, :b_lease, '{"ok": true}'), 'acked', 'a late ack works as long as nobody received it since');
select is(workq.ack('q', :e_id, :b_lease), 'gone', 'twice: gone');
select throws_ok(format('select workq.ack(''q'', %s, %s, strict => true)', :e_id, :b_lease), 'WQ002', 'lease is lost', 'strict and gone: WQ002');
select is(workq.ack('q', 9223372036854775807, 1), 'gone', 'an id that never was');
select is((select array_agg(row(attempt, lease, outcome, worker, result)::text) from workq.history('q', :e_id)),
  array[row(1, :a_lease, 'timeout', 'w1', null::jsonb)::text, row(2, :b_lease, 'acked', 'w2', '{"ok": true}'::jsonb)::text], 'history: both attempts, by their ends');
select is_empty('select * from workq.delivery', 'the delivery is gone');
select is((select (payload, state) from workq.get('q', :e_id)), ('{"n": 1}'::jsonb, 'acked'::text), 'the message can be read still');

-- Dead letters are gone too.
select (workq.enqueue('q')).id as id \gset d_
select lease from workq.receive('q') \gset d_
select is(workq.fail('q', :d_id, :d_lease, permanent => true), 'dead');
select is(workq.ack('q', :d_id, :d_lease), 'gone', 'a dead letter is gone');
select is((select count(*) from workq.dead_letters('q')), 1::bigint, 'and stays');

-- Results up to 64 KiB, then cut with a mark.
select count(*) as n from workq.enqueue_many('q', kinds => '{fits,over,bytes}') \gset
create temp table r as select * from workq.receive('q', 3);
select is(octet_length(to_jsonb(repeat('x', 65534))::text), 65536, 'a result of 64 KiB');
select is(workq.ack('q', id, lease, to_jsonb(repeat('x', case kind when 'fits' then 65534 else 65535 end))), 'acked', 'ack with a result that ' || kind) from r where kind <> 'bytes' order by kind;
select is((select result = to_jsonb(repeat('x', 65534)) from r cross join lateral workq.history('q', r.id) where kind = 'fits'), true, 'is kept whole');
select is((select result - 'head' from r cross join lateral workq.history('q', r.id) h where kind = 'over' and jsonb_typeof(result) = 'object'), '{"cut": true, "bytes": 65537}', 'a byte more: cut with a mark');
select is((select length(result ->> 'head') from r cross join lateral workq.history('q', r.id) h where kind = 'over' and jsonb_typeof(result) = 'object'), 16384, 'and its head kept');
select is(workq.ack('q', id, lease, to_jsonb(repeat('€', 1000000))), 'acked', 'a result of 3 MB in characters of three bytes') from r where kind = 'bytes';
select cmp_ok((select octet_length(result::text) from r cross join lateral workq.history('q', r.id) h where kind = 'bytes'), '<=', 66000, 'is cut too');

-- history = failures, none.
select workq.create_queue('hf', history => 'failures') as hf, workq.create_queue('hn', history => 'none') as hn \gset
select (workq.enqueue(h)).id as id from unnest(array['hf']) h \gset f_
select lease from workq.receive('hf') \gset f_
select is(workq.ack('hf', :f_id, :f_lease, '1'), 'acked');
select is_empty(format('select * from workq.history(''hf'', %s)', :f_id), 'history failures: an ack leaves no line');
select is((workq.get('hf', :f_id)).state, 'finished', 'get says finished');
select (workq.enqueue('hn')).id as id \gset n_
select lease from workq.receive('hn') \gset n_
select is(workq.ack('hn', :n_id, :n_lease, '1'), 'acked');
select is_empty(format('select * from workq.history(''hn'', %s)', :n_id), 'history none: nothing');

-- Many, mixed, in the order given.
select workq.create_queue('m') as m \gset
select array_agg(r.id order by r.id) as ids from workq.enqueue_many('m', kinds => '{a,b,c,d}') r \gset
create temp table l as select id, lease, row_number() over (order by id) as n from workq.receive('m', 3);
select is((select array_agg(row(s.ord, i.n, s.outcome)::text order by s.ord) from workq.ack_many('m',
    array[(select id from l where n = 3), (:'ids'::bigint[])[4], (select id from l where n = 1), 0, (select id from l where n = 2), (select id from l where n = 3)],
    array[(select lease from l where n = 3), 5, (select lease from l where n = 1), 5, 5, (select lease from l where n = 3)]) s
  left join (select id, row_number() over () as n from unnest(:'ids'::bigint[]) id) i using (id)),
  array[row(1, 3, 'acked')::text, row(2, 4, 'stale')::text, row(3, 1, 'acked')::text, row(4, null::int, 'gone')::text, row(5, 2, 'stale')::text, row(6, 3, 'gone')::text],
  'each has its own outcome, in the order given; one ack of a lease succeeds, not two (I5)');
select is((select count(*) from workq.delivery d where d.queue_id = (select id from workq.queue where name = 'm')), 2::bigint, 'two are left');
select is((select count(*) from workq.attempt a where a.message_id = any (:'ids')), 2::bigint, 'two lines of history: I5');
select is_empty($$ select * from workq.ack_many('m', '{}', '{}') $$, 'an empty batch');
select throws_ok(format('select workq.ack_many(''m'', %s)', a), '22023', null, 'a bad batch: ' || a) from unnest(array[
  'null, ''{1}''', '''{1}'', null', '''{1,2}'', ''{1}''', '''{null}'', ''{1}''', '''{1}'', ''{null}''', '''{1}'', ''{1}'', array[]::jsonb[]', '''{1}'', ''{1}'', ''{1,2}''',
  '''{{1,2}}'', ''{{1,2}}''', '''{1,2}'', ''{{1,2}}''', '''[0:0]={1}'', ''{1}''', '''{1}'', ''[2:2]={1}''', '''{1}'', ''{1}'', ''[2:2]={1}''']) a;
select throws_ok($$ select workq.ack_many('nope', '{1}', '{1}') $$, 'WQ001', null, 'ack_many: WQ001');

select * from finish();
rollback;
