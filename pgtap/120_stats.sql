-- Counting: stats.
begin;
select plan(19);

select is(
  (select format('(%s) -> %s %s', pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid), p.provolatile)
   from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.proname = f.name),
  f.signature, 'signature of ' || f.name)
from (values
  ('stats', '(queue text) -> SETOF workq.queue_stats v')
) f (name, signature);
select is((select string_agg(a.attname, ',' order by a.attnum) from pg_attribute a where a.attrelid = 'workq.queue_stats'::regclass and a.attnum > 0),
  'queue,ready,delayed,leased,retrying,dead,oldest_ready,enqueued_per_second,acked_per_second,failed_per_second,paused,estimated', 'columns of stats');
select is_empty('select * from workq.stats()', 'no queues, no rows');
select throws_ok($$ select * from workq.stats('nope') $$, 'WQ001', null, 'WQ001');
select workq.create_queue('q') as q, workq.create_queue('b') as b, workq.create_queue('a', paused => true) as a \gset
select is((select to_jsonb(s) from workq.stats('q') s), '{"queue": "q", "ready": 0, "delayed": 0, "leased": 0, "retrying": 0, "dead": 0, "oldest_ready": null, "enqueued_per_second": 0, "acked_per_second": 0,
  "failed_per_second": 0, "paused": false, "estimated": false}', 'an empty queue');
select is((select array_agg(queue) from workq.stats()), '{a,b,q}', 'all queues, by name');
select is((select paused from workq.stats('a')), true, 'paused');

-- 1 ready, 2 delayed, 3 leased, 4 retrying, 5 dead, 6 acked, and one whose lease ran out: ready too.
select count(*) as n from workq.enqueue_many('q', kinds => (select array_agg(k) from (values ('leased', 3), ('retrying', 4), ('dead', 5), ('acked', 6), ('lapsed', 1)) v (k, n), generate_series(1, n))) \gset
do $$ declare r workq.received; begin
  for r in select * from workq.receive('q', 100) loop
    if r.kind = 'retrying' then perform workq.fail('q', r.id, r.lease); end if;
    if r.kind = 'dead' then perform workq.fail('q', r.id, r.lease, permanent => true); end if;
    if r.kind = 'acked' then perform workq.ack('q', r.id, r.lease); end if;
    if r.kind = 'lapsed' then update workq.delivery set visible_at = clock_timestamp() - interval '1 hour' where message_id = r.id; end if;
  end loop;
end $$;
select count(*) as n from workq.enqueue_many('q', run_ats => array[null, clock_timestamp() + interval '1 hour', clock_timestamp() + interval '1 hour']) \gset
select is((select to_jsonb(s) - '{oldest_ready,enqueued_per_second,acked_per_second,failed_per_second}'::text[] from workq.stats('q') s),
  '{"queue": "q", "ready": 2, "delayed": 2, "leased": 3, "retrying": 4, "dead": 5, "paused": false, "estimated": false}', 'each state');
select ok(oldest_ready between '1 hour' and '1 hour 1 minute', 'oldest_ready') from workq.stats('q');
select is(round(enqueued_per_second * 60), 22::double precision, 'enqueued a second, over the last minute') from workq.stats('q');
select is(round(acked_per_second * 60), 6::double precision, 'acked a second') from workq.stats('q');
select is(round(failed_per_second * 60), 9::double precision, 'failed a second') from workq.stats('q');
select is((select array[ready, delayed, leased, retrying, dead] from workq.stats('b')), '{0,0,0,0,0}', 'other queues are counted for themselves');
select is((select to_jsonb(s) - '{oldest_ready,enqueued_per_second,acked_per_second,failed_per_second}'::text[] from workq.stats() s where queue = 'q'),
  (select to_jsonb(s) - '{oldest_ready,enqueued_per_second,acked_per_second,failed_per_second}'::text[] from workq.stats('q') s), 'the same in the list of all');

-- Whatever the session's way of writing a time.
set local datestyle = 'SQL, DMY';
set local timezone = 'Asia/Kolkata';
select is((select array[ready, delayed, leased, retrying, dead] from workq.stats('q')), '{2,2,3,4,5}', 'in another DateStyle and TimeZone');
set local datestyle = 'German';
set local timezone = 'America/St_Johns';
select is((select array[ready, delayed, leased, retrying, dead] from workq.stats('q')), '{2,2,3,4,5}', 'and another');
reset datestyle;
reset timezone;

-- Exact to 100,000 a state.
insert into workq.delivery (message_id, created_at, visible_at, queue_id, priority)
select n, clock_timestamp(), clock_timestamp(), (select id from workq.queue where name = 'b'), 5 from generate_series(1000001, 1100000) n;
select is((select (ready, estimated) from workq.stats('b')), (100000::bigint, false), '100,000 are counted');
insert into workq.delivery (message_id, created_at, visible_at, queue_id, priority)
values (1, clock_timestamp(), clock_timestamp(), (select id from workq.queue where name = 'b'), 5);
select is((select (ready > 100000, estimated) from workq.stats('b')), (true, true), 'one more is an estimate, and says so');
select is((select estimated from workq.stats('q')), false, 'the others are exact');

select * from finish();
rollback;
