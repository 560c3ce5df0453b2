-- Maintenance: maintain. Rows and partitions are backdated by hand.
begin;
select plan(49);

select is(
  (select format('(%s) -> %s %s', pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid), p.provolatile)
   from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.proname = f.name),
  f.signature, 'signature of ' || f.name)
from (values
  ('maintain', '() -> SETOF workq.maintenance v')
) f (name, signature);
-- All partitions of a table, by the words of the catalogue.
create function pg_temp.partitions(parent regclass) returns table (name text, lower text, upper text) language sql as $$
  select c.relname::text, b[1], b[2]
  from pg_inherits i
  join pg_class c on c.oid = i.inhrelid
  cross join lateral regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''?([^'']+)''?\) TO \(''?([^'']+)''?\)') b
  where i.inhparent = parent
  order by case b[2] when 'MAXVALUE' then 'infinity' else b[2] end::timestamptz
$$;

-- Ahead of time.
select workq.create_queue('q') as q \gset
select set_eq($$ select action from workq.maintain() $$, array['partition made'], 'the first run makes partitions');
select is_empty($$ select * from workq.maintain() $$, 'the second has nothing to do');
select is((select lower from pg_temp.partitions(t::regclass) limit 1), 'MINVALUE', t || ' begins at MINVALUE') from unnest(array['workq.message', 'workq.attempt']) t;
select is((select array_agg(name) from pg_temp.partitions(t::regclass) where upper = 'MAXVALUE'), array[replace(t, 'workq.', '') || '_tail'], t || ' ends with its tail') from unnest(array['workq.message', 'workq.attempt']) t;
select is((select count(*) from (select lower, lag(upper) over () as before from pg_temp.partitions(t::regclass)) p where before <> lower), 0::bigint, t || ' has no gap')
from unnest(array['workq.message', 'workq.attempt']) t;
select cmp_ok((select lower::timestamptz from pg_temp.partitions('workq.message') where upper = 'MAXVALUE'), '>=', clock_timestamp() + interval '3.5 days', 'a width ahead: a quarter of the ttl of 14 days');
select cmp_ok((select lower::timestamptz from pg_temp.partitions('workq.attempt') where upper = 'MAXVALUE'), '>=', clock_timestamp() + interval '1.75 days', 'a quarter of the retention of 7 days');
select cmp_ok((select count(*) from pg_temp.partitions('workq.message')), '<=', 4::bigint, 'few partitions: a cached plan locks each');
select is((workq.enqueue('q')).id is not null, true, 'enqueue goes on');

-- A session that writes times its own way makes the same partitions.
savepoint style;
update workq.queue set ttl = '100 days', retention = '100 days';
set local datestyle = 'SQL, DMY';
set local timezone = 'Asia/Kolkata';
select set_eq($$ select action from workq.maintain() $$, array['partition made'], 'another DateStyle and TimeZone');
set local datestyle = 'ISO, YMD';
set local timezone = 'UTC';
select is((select count(*) from pg_temp.partitions(t::regclass) p where p.upper <> 'MAXVALUE'
    and to_char(p.upper::timestamptz at time zone 'UTC', 'YYYYMMDD"t"HH24MISS') <> split_part(p.name, '_before_', 2)), 0::bigint, t || ': the bound is that of the name')
from unnest(array['workq.message', 'workq.attempt']) t;
rollback to style;

-- A tail that was neglected: its rows stay.
savepoint neglected;
select id from workq.enqueue('q') \gset n_
update workq.message set created_at = clock_timestamp() + interval '100 days' where id = :n_id;  -- a clock that was stepped back
update workq.delivery set created_at = (select created_at from workq.message where id = :n_id) where message_id = :n_id;
select is((select tableoid::regclass::text from workq.message where id = :n_id), 'workq.message_tail', 'a message beyond the last bound goes to the tail');
update workq.queue set ttl = '40 days';
select lives_ok($$ select * from workq.maintain() $$, 'closing a tail with rows in it');
select isnt((select tableoid::regclass::text from workq.message where id = :n_id), 'workq.message_tail', 'they are in a closed partition then');
select is((workq.get('q', :n_id)).state, 'ready', 'and there');
rollback to neglected;

-- Retention. An old partition of messages, and one of history, with rows in them.
create function pg_temp.age(ids bigint[]) returns void language sql as $$
  update workq.delivery d set created_at = '2020-01-01'::timestamptz where d.message_id = any (ids);
  update workq.message m set created_at = '2020-01-01'::timestamptz where m.id = any (ids);
  update workq.attempt a set finished_at = '2020-01-02'::timestamptz where a.message_id = any (ids);
$$;
create function pg_temp.make_old() returns void language plpgsql as $$
declare
  p record;
  v_bound timestamptz := date_trunc('day', clock_timestamp()) - interval '40 days';
begin
  for p in
    select t.parent, f.name, f.upper from (values ('message'), ('attempt')) t (parent)
    cross join lateral (select * from pg_temp.partitions(('workq.' || t.parent)::regclass) limit 1) f
  loop
    execute format('alter table workq.%I detach partition workq.%I', p.parent, p.name);
    execute format('create table workq.%I partition of workq.%I for values from (minvalue) to (%L)', p.parent || '_old', p.parent, v_bound);
    execute format('alter table workq.%I owner to %I', p.parent || '_old', (select pg_get_userbyid(n.nspowner) from pg_namespace n where n.nspname = 'workq'));
    execute format('alter table workq.%I attach partition workq.%I for values from (%L) to (%L)', p.parent, p.name, v_bound, p.upper);
  end loop;
end $$;
select pg_temp.make_old() as old \gset

select workq.purge_queue('q') as n \gset
select count(*) as n from workq.enqueue_many('q', kinds => '{acked,died,delayed,leased,ready}', priorities => '{0,1,2,3,4}') \gset
create temp table m as select id, lease, kind from workq.receive('q', 4);
insert into m select id, null, 'ready' from workq.peek('q', state => 'ready');
select is(workq.ack('q', id, lease, '{"r": 1}'), 'acked') from m where kind = 'acked';
select is(workq.fail('q', id, lease, permanent => true), 'dead') from m where kind = 'died';
select is(workq.release('q', id, lease, '1 hour'), 'released') from m where kind = 'delayed';
select pg_temp.age((select array_agg(id) from m)) as aged \gset
select is((select count(*) from workq.message_old), 5::bigint, 'five messages in an old partition');

select is((select array_agg(action || ' ' || target) from workq.maintain()), '{"partition dropped attempt_old"}', 'the old history goes; the messages stay, since some are unfinished');
select is((select count(*) from workq.message_old), 5::bigint, 'all of them');
select is((workq.get('q', id)).payload is null and (workq.get('q', id)).kind = 'acked', true, 'a finished one can still be read') from m where kind = 'acked';
select is(workq.ack('q', id, lease), 'acked') from m where kind = 'leased';
select is(workq.cancel('q', id), 'cancelled') from m where kind = 'ready';
select is_empty($$ select * from workq.maintain() $$, 'one delayed message holds its partition');
select is(workq.run_now('q', id), true) from m where kind = 'delayed';
select (workq.get('q', id)).kind from m where kind = 'delayed' \gset d_
select is(:'d_kind'::text, 'delayed', 'and it is whole');
select id, lease from workq.receive('q') \gset d_
select is(workq.fail('q', :d_id, :d_lease, permanent => true), 'dead', 'now all are finished or dead');
select is((select array_agg(action || ' ' || target) from workq.maintain()), '{"partition dropped message_old"}', 'dead letters do not hold a partition');
select is((select array_agg(kind order by kind) from workq.dead_letters('q')), '{delayed,died}', 'they have their own copies');
select throws_ok(format('select workq.get(''q'', %s)', id), 'WQ003', null, 'of the acked one nothing is left') from m where kind = 'acked';
select is((select (state, kind) from workq.get('q', id)), ('cancelled'::text, null::text), 'of one with history in a newer partition the history') from m where kind = 'ready';
select is((select (state, kind) from workq.get('q', id)), ('dead'::text, 'died'::text), 'the dead letter shows') from m where kind = 'died';
select is(workq.redrive('q'), 2::bigint, 'and can be redriven');
select is((select array_agg(kind order by kind) from workq.receive('q', 10)), '{delayed,died}', 'whole');

-- The longest retention of any queue counts, and the last day always stays.
select workq.purge_queue('q') as n, workq.create_queue('long', retention => '10 years') as long \gset
select pg_temp.make_old() as old \gset
select (workq.enqueue('long')).id as id \gset l_
select lease from workq.receive('long') \gset l_
select is(workq.ack('long', :l_id, :l_lease), 'acked');
select pg_temp.age(array[:l_id]) as aged \gset
update workq.message set created_at = clock_timestamp() - interval '50 days' where id = :l_id;
update workq.attempt set finished_at = clock_timestamp() - interval '50 days' where message_id = :l_id;
select is((select count(*) from workq.maintain() where action = 'partition dropped'), 0::bigint, 'one queue keeps its messages for ten years');
select is((workq.get('long', :l_id)).state, 'acked', 'so it can be read');
select workq.drop_queue('long', true) as long \gset
select set_eq($$ select target from workq.maintain() where action = 'partition dropped' $$, array['message_old', 'attempt_old'], 'without that queue they go');
select workq.alter_queue('q', retention => '0') as q \gset
select is((select count(*) from workq.maintain() where action = 'partition dropped'), 0::bigint, 'a retention of 0: the last day stays');
select is((select upper from pg_temp.partitions('workq.message') order by upper desc limit 1), 'MAXVALUE', 'and the tail');

-- The sequences of a dropped queue.
select workq.create_queue('gone') as gone \gset
select id from workq.queue where name = 'gone' \gset g_
select workq.drop_queue('gone') as gone \gset
select is((select count(*) from workq.maintain() where action = 'sequence dropped' and target ~ format('^queue_%s_', :g_id)), 7::bigint, 'the sequences of a dropped queue go');
select is((select count(*) from pg_class c where c.relkind = 'S' and c.relname ~ format('^queue_%s_', :g_id)), 0::bigint, 'all of them');
select is((select count(*) from pg_class c where c.relkind = 'S' and c.relname ~ format('^queue_%s_', q.id)), 7::bigint, 'those of another stay') from workq.queue q where q.name = 'q';

select * from finish();
rollback;
