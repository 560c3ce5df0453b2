-- Sending: enqueue, enqueue_many.
begin;
select plan(86);

select is(
  (select format('(%s) -> %s %s', pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid), p.provolatile)
   from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.proname = f.name),
  f.signature, 'signature of ' || f.name)
from (values
  ('enqueue', '(queue text, payload jsonb, body bytea, content_type text, kind text, headers jsonb, priority integer, delay interval, run_at timestamp with time zone, group_key text, dedupe_key text, dedupe_for interval, ttl interval, max_attempts integer) -> workq.receipt v'),
  ('enqueue_many', '(queue text, payloads jsonb[], bodies bytea[], content_types text[], kinds text[], headers jsonb[], priorities integer[], run_ats timestamp with time zone[], group_keys text[], dedupe_keys text[], dedupe_for interval, ttl interval, max_attempts integer) -> SETOF workq.receipt v')
) f (name, signature);
select workq.create_queue('q') as q, workq.create_queue('small', max_payload_bytes => 1000) as small \gset

-- A receipt, and what is stored.
select clock_timestamp() as t0 \gset
select id, duplicate, visible_at from workq.enqueue('q', '{"n": 1}', '\x00ff', 'application/x', 'k', '{"h": "v"}', 3) \gset r_
select is(:'r_duplicate'::boolean, false, 'not a duplicate');
select ok(:'r_visible_at'::timestamptz between :'t0' and clock_timestamp(), 'visible now');
select is((select to_jsonb(m) - 'created_at' from workq.message m where m.id = :r_id),
  jsonb_build_object('id', :r_id, 'queue_id', (select id from workq.queue where name = 'q'), 'payload', '{"n": 1}'::jsonb, 'headers', '{"h": "v"}'::jsonb,
    'kind', 'k', 'content_type', 'application/x', 'body', '\x00ff'), 'the message, word for word');
select is((select to_jsonb(d) - '{created_at,visible_at,expires_at,queue_id}'::text[] from workq.delivery d),
  jsonb_build_object('message_id', :r_id, 'attempt', 0, 'lease', null, 'received_at', null, 'max_attempts', null, 'priority', 3, 'worker', null, 'status', null),
  'one delivery, unreceived');
select is((select expires_at - visible_at from workq.delivery), '14 days'::interval, 'the ttl counts from when it becomes visible');
select is((select d.created_at from workq.delivery d), (select m.created_at from workq.message m), 'delivery and message name the same partition');
select cmp_ok((workq.enqueue('q')).id, '>', :r_id::bigint, 'ids grow; neither payload nor body is needed');
select is((select priority from workq.delivery order by message_id desc limit 1), 5::smallint, 'priority is 5 by default');
select is((select (m.payload, m.body, m.headers, m.kind) is null from workq.message m order by id desc limit 1), true, 'what is not given is null');
select is((workq.get('q', (workq.enqueue('q', 'null')).id)).payload, 'null'::jsonb, 'a JSON null is a payload');

-- Times.
select ok((workq.enqueue('q', delay => '1 hour')).visible_at - clock_timestamp() between '59 minutes' and '1 hour', 'delay counts from now');
select is((workq.enqueue('q', run_at => '2100-01-02 03:04:05+00')).visible_at, '2100-01-02 03:04:05+00', 'run_at is taken as it is');
select (workq.enqueue('q', run_at => '2100-01-01', ttl => '1 hour', max_attempts => 1)).id \gset l_
select is((select expires_at from workq.delivery where message_id = :l_id),
  '2100-01-01'::timestamptz + '1 hour'::interval, 'ttl of a delayed one begins at run_at');
select ok((workq.enqueue('q', run_at => '2000-01-01')).visible_at between :'t0' and clock_timestamp(), 'run_at in the past means now');
select lives_ok($$ select workq.enqueue('q', run_at => '-infinity') $$, 'however long past');
select ok((workq.enqueue('q', delay => '0')).visible_at between :'t0' and clock_timestamp(), 'a delay of 0 is now');
select lives_ok($$ select workq.enqueue('q', delay => '100 years') $$, 'a delay of 100 years');
select throws_ok(format('select workq.enqueue(''q'', %s)', a), '22023', 'argument out of range', 'out of range: ' || a) from unnest(array[
  'delay => ''1 s'', run_at => ''2100-01-01''', 'delay => ''-1 s''', 'delay => ''100 years 1 s''', 'run_at => ''infinity''', 'run_at => clock_timestamp() + interval ''101 years''',
  'priority => -1', 'priority => 11', 'ttl => ''0''', 'ttl => ''-1 s''', 'ttl => ''101 years''', 'max_attempts => 0']) a;
select lives_ok(format('select workq.enqueue(''q'', priority => %s)', p), 'priority ' || p) from unnest(array[0, 10]) p;
select is((select max_attempts from workq.delivery where message_id = :l_id), 1, 'max_attempts of the message');
select throws_ok(format('select workq.enqueue(''q'', %s)', a), '0A000', 'argument is not supported yet', 'not built yet: ' || a)
from unnest(array['group_key => ''g''', 'group_key => ''''', 'dedupe_key => ''d''', 'dedupe_for => ''1 s''']) a;

-- Sizes, at the limit and one more.
select lives_ok($$ select workq.enqueue('small', body => convert_to(repeat('x', 1000), 'UTF8')) $$, 'a body of the limit');
select throws_ok($$ select workq.enqueue('small', body => convert_to(repeat('x', 1001), 'UTF8')) $$, 'WQ004', 'payload is over the limit of the queue', 'and a byte more: WQ004');
select is(pg_column_size(to_jsonb(repeat('x', 988))), 1000, 'a JSON string of 988 bytes takes 1000');
select lives_ok($$ select workq.enqueue('small', to_jsonb(repeat('x', 988))) $$, 'a payload of the limit');
select throws_ok($$ select workq.enqueue('small', to_jsonb(repeat('x', 989))) $$, 'WQ004', null, 'and a byte more: WQ004');
select lives_ok($$ select workq.enqueue('small', to_jsonb(repeat('x', 488)), convert_to(repeat('x', 500), 'UTF8')) $$, 'payload and body count together: the limit');
select throws_ok($$ select workq.enqueue('small', to_jsonb(repeat('x', 488)), convert_to(repeat('x', 501), 'UTF8')) $$, 'WQ004', null, 'and a byte more: WQ004');
create temp table compressed as select to_jsonb(repeat('x', 1000000)) as payload;
select ok(pg_column_size(payload) < 100000, 'a payload that a table holds compressed') from compressed;
select throws_ok($$ select workq.enqueue('small', payload) from compressed $$, 'WQ004', null, 'counts with its full size');
select lives_ok(format('select workq.enqueue(''q'', %s => repeat(''x'', 256))', a), a || ' of 256 bytes') from unnest(array['kind', 'content_type']) a;
select throws_ok(format('select workq.enqueue(''q'', %s => repeat(''x'', 257))', a), '22023', null, a || ' of 257 bytes') from unnest(array['kind', 'content_type']) a;
select throws_ok($$ select workq.enqueue('q', kind => repeat('ä', 129)) $$, '22023', null, 'bytes are counted, not characters');
select is(pg_column_size(jsonb_build_object('h', repeat('x', 16367))), 16384, 'an object that takes 16384');
select lives_ok($$ select workq.enqueue('q', headers => jsonb_build_object('h', repeat('x', 16367))) $$, 'headers of 16 KiB');
select throws_ok($$ select workq.enqueue('q', headers => jsonb_build_object('h', repeat('x', 16368))) $$, '22023', null, 'headers of a byte more');
select throws_ok(format('select workq.enqueue(''q'', headers => %L)', h), '22023', null, 'headers are no object: ' || h) from unnest(array['[]', '1', '"s"', 'null', 'true']) h;
select lives_ok($$ select workq.enqueue('q', headers => '{}') $$, 'an empty object will do');
select throws_ok($$ select workq.enqueue('nope') $$, 'WQ001', null, 'WQ001');
select throws_ok($$ select workq.enqueue(null) $$, '22023', null, 'a null queue: 22023');

-- Many: receipts in the order given, whatever the priorities.
select workq.create_queue('m') as m \gset
select is((select array_agg((workq.get('m', r.id)).kind order by r.ord) from workq.enqueue_many('m', kinds => '{a,b,c}', priorities => '{9,0,null}') with ordinality r (id, duplicate, visible_at, ord)),
  '{a,b,c}', 'receipts in the order given');
select is((select array_agg(d.priority order by d.message_id) from workq.delivery d where d.queue_id = (select id from workq.queue where name = 'm')), '{9,0,5}', 'a null takes its default');
select is((select count(*) from workq.enqueue_many('m', payloads => array['1', null]::jsonb[], bodies => array[null, '\x01']::bytea[], content_types => array[null, 'x'],
  headers => array[null, '{}']::jsonb[], run_ats => array[null, '2100-01-01']::timestamptz[], ttl => '1 hour', max_attempts => 2)), 2::bigint, 'all arrays together');
select is((select array_agg(array[payload, to_jsonb(encode(body, 'hex')), to_jsonb(content_type), headers] order by id)
  from workq.peek('m') where expires_at is not null and max_attempts = 2), array[array['1', null, null, null], array[null, '"01"', '"x"', '{}']]::jsonb[], 'each has its own');
select is((select count(*) from workq.enqueue_many('m', bodies => array_fill(null::bytea, array[1000]))), 1000::bigint, 'a thousand nulls are a thousand messages');
select is_empty($$ select * from workq.enqueue_many('m') $$, 'no array, no message');
select is_empty($$ select * from workq.enqueue_many('m', kinds => '{}') $$, 'an empty array, no message');
select throws_ok($$ select workq.enqueue_many('m', kinds => '{a,b}', priorities => '{1}') $$, '22023', null, 'arrays of different lengths');
select throws_ok($$ select workq.enqueue_many('m', kinds => '{{a,b},{c,d}}') $$, '22023', null, 'arrays of two dimensions');
select is((select array_agg((workq.get('m', r.id)).kind order by r.id) from workq.enqueue_many('m', kinds => '[0:1]={x,y}', priorities => '[5:6]={1,2}') r), '{x,y}', 'arrays that begin elsewhere');
select throws_ok($$ select workq.enqueue_many('m', group_keys => '{a}') $$, '0A000', null, 'group_keys: 0A000');
select throws_ok($$ select workq.enqueue_many('m', dedupe_keys => '{a}') $$, '0A000', null, 'dedupe_keys: 0A000');
select throws_ok($$ select workq.enqueue_many('m', kinds => '{a}', dedupe_for => '1 s') $$, '0A000', null, 'dedupe_for: 0A000');
select count(*) as before from workq.message \gset
select throws_ok($$ select workq.enqueue_many('m', priorities => '{1,2,11}') $$, '22023', null, 'one bad');
select throws_ok($$ select workq.enqueue_many('small', bodies => array['\x00', convert_to(repeat('x', 1001), 'UTF8')]) $$, 'WQ004', null, 'one too large');
select is((select count(*) from workq.message), :before::bigint, 'then none is stored');

-- max_depth. The sample serves for a second: forget it where it matters.
select workq.create_queue('d', max_depth => 3) as d \gset
select lives_ok($$ select workq.enqueue_many('d', kinds => '{a,b,c}') $$, 'as many as fit');
select setval(q.depth, 1) as forgotten from workq.queue q where q.name = 'd' \gset
select throws_ok($$ select workq.enqueue('d') $$, 'WQ005', 'queue is full', 'one more: WQ005');
select id, lease from workq.receive('d') \gset r_
select setval(q.depth, 1) as forgotten from workq.queue q where q.name = 'd' \gset
select throws_ok($$ select workq.enqueue('d') $$, 'WQ005', null, 'a leased one counts');
select is(workq.ack('d', :r_id, :r_lease), 'acked');
select setval(q.depth, 1) as forgotten from workq.queue q where q.name = 'd' \gset
select throws_ok($$ select workq.enqueue_many('d', kinds => '{a,b}') $$, 'WQ005', null, 'two where there is room for one: none');
select lives_ok($$ select workq.enqueue('d') $$, 'one fits');
select workq.create_queue('d1', max_depth => 2) as d \gset
select throws_ok($$ select workq.enqueue_many('d1', kinds => '{a,b,c}') $$, 'WQ005', null, 'a batch larger than max_depth');
select lives_ok($$ select workq.alter_queue('d1', clear => '{max_depth}'), workq.enqueue_many('d1', kinds => '{a,b,c}') $$, 'no max_depth, no limit');

select * from finish();
rollback;
