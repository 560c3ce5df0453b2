-- Who may do what. Until something is granted, nobody but the owner may do anything.
begin;
select * from no_plan();  -- one for each function that there is

create role workq_tap_nobody;
create role workq_tap_caller;
create function pg_temp.as_role(role_name name, statement text) returns void language plpgsql as $$
begin
  execute format('set local role %I', role_name);
  execute statement;
  reset role;
end $$;
-- A call with nulls of the right types.
create function pg_temp.call(f regprocedure) returns text language sql as $$
  select format('select %s(%s)', p.oid::regproc, (select string_agg('null::' || t::regtype, ', ' order by n) from unnest(p.proargtypes::oid[]) with ordinality a (t, n)))
  from pg_proc p where p.oid = f
$$;

-- The declared matrix: public functions by name; everything else has an underscore.
select set_eq(
  $$ select p.proname::text from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.proname !~ '^_' $$,
  array['create_queue', 'alter_queue', 'drop_queue', 'pause_queue', 'resume_queue', 'purge_queue', 'queues', 'enqueue', 'enqueue_many', 'receive', 'idle', 'ack', 'ack_many',
    'fail', 'fail_many', 'extend', 'extend_many', 'release', 'release_many', 'report', 'get', 'history', 'peek', 'dead_letters', 'cancel', 'run_now', 'redrive', 'stats', 'sweep', 'maintain', 'version'],
  'these functions are the interface, and no other');

-- Rights as the catalogue has them.
select is(array(select a.grantee::regrole::text || ' ' || a.privilege_type from aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) a where a.grantee <> n.nspowner), '{}',
  'nobody but the owner has rights on the schema') from pg_namespace n where n.nspname = 'workq';
select is(array(select a.grantee::regrole::text || ' ' || a.privilege_type from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where a.grantee <> p.proowner), '{}',
  p.proname || ': EXECUTE is revoked from PUBLIC')
from pg_proc p where p.pronamespace = 'workq'::regnamespace order by p.proname;
select is((select count(*) from pg_class c where c.relnamespace = 'workq'::regnamespace and c.relkind in ('r', 'p', 'S', 'v')
    and exists (select from aclexplode(c.relacl) a where a.grantee <> c.relowner)), 0::bigint, 'nobody but the owner has rights on a table or sequence');
select is(array(select p.proname from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'workq' and p.proowner <> n.nspowner), '{}', 'all functions belong to the owner of the schema');
select is((select rolsuper from pg_roles where oid = (select nspowner from pg_namespace where nspname = 'workq')), false, 'who is no superuser: definer functions lend no more than the tables');

-- Public: SECURITY DEFINER with exactly this path. Helpers: SECURITY INVOKER.
select is((select row(p.prosecdef, (select c from unnest(p.proconfig) c where c ~ '^search_path='))::text), row(true, 'search_path=pg_catalog, pg_temp')::text, p.proname || ' is SECURITY DEFINER with a pinned path')
from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.proname !~ '^_' order by p.proname;
select is(p.prosecdef, false, p.proname || ' is SECURITY INVOKER') from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.proname ~ '^_' order by p.proname;

-- The negative matrix, tried: without USAGE on the schema, and with it.
select workq.create_queue('q') as q \gset
select throws_ok(format('select pg_temp.as_role(''workq_tap_nobody'', %L)', pg_temp.call(p.oid)), '42501', 'permission denied for schema workq', 'an ordinary role: ' || p.proname)
from pg_proc p where p.pronamespace = 'workq'::regnamespace order by p.proname;
grant usage on schema workq to workq_tap_nobody;
select throws_ok(format('select pg_temp.as_role(''workq_tap_nobody'', %L)', pg_temp.call(p.oid)), '42501', 'permission denied for function ' || p.proname, 'even with USAGE on the schema: ' || p.proname)
from pg_proc p where p.pronamespace = 'workq'::regnamespace order by p.proname;
select throws_ok(format('select pg_temp.as_role(''workq_tap_nobody'', %L)', format(s.statement, c.oid::regclass)), '42501', null, format('an ordinary role: ' || s.statement, c.relname))
from pg_class c
cross join (values ('select from %s'), ('delete from %s'), ('truncate %s'), ('lock table %s in access exclusive mode'), ('drop table %s')) s (statement)
where c.relnamespace = 'workq'::regnamespace and c.relkind in ('r', 'p') order by c.relname, s.statement;
select throws_ok(format('select pg_temp.as_role(''workq_tap_nobody'', %L)', format(s.statement, c.oid::regclass)), '42501', null, format('an ordinary role: ' || s.statement, c.relname))
from pg_class c
cross join (values ('select nextval(%L)'), ('select setval(%L, 1)'), ('select last_value from %s')) s (statement)
where c.relnamespace = 'workq'::regnamespace and c.relkind = 'S' and c.relname in ('message_id', 'lease_number', 'sweep_due', 'queue_id_seq') order by c.relname, s.statement;
select throws_ok($$ select pg_temp.as_role('workq_tap_nobody', 'create table workq.mine ()') $$, '42501', 'permission denied for schema workq', 'an ordinary role makes nothing in the schema');
select throws_ok($$ select pg_temp.as_role('workq_tap_nobody', 'create function workq.mine() returns int language sql as ''select 1''') $$, '42501', 'permission denied for schema workq', 'no function either');

-- A right to one function is a right to that one.
grant usage on schema workq to workq_tap_caller;
grant execute on function workq.enqueue, workq.receive, workq.ack to workq_tap_caller;
select lives_ok($$ select pg_temp.as_role('workq_tap_caller', 'select workq.enqueue(''q''); select workq.receive(''q'')') $$, 'who may call enqueue and receive can');
select throws_ok($$ select pg_temp.as_role('workq_tap_caller', 'select workq.enqueue_many(''q'')') $$, '42501', 'permission denied for function enqueue_many', 'but not enqueue_many');
select throws_ok($$ select pg_temp.as_role('workq_tap_caller', 'select * from workq.delivery') $$, '42501', 'permission denied for table delivery', 'nor look into the table');
select workq.purge_queue('q') as n \gset

-- Temporary tables, functions, operators and types named like ours or like PostgreSQL's cannot hijack a call.
set local role workq_tap_caller;
create temp table queue (id int, name text);
create temp table delivery (message_id bigint);
create temp table message (id bigint);
create temp table attempt (message_id bigint);
create temp table pg_class (oid oid);
create temp table hijacked (what text);
create type pg_temp.receipt as (x int);
create domain pg_temp.text as pg_catalog.text check (false);
create domain pg_temp.timestamptz as pg_catalog.timestamptz check (false);
create function pg_temp.clock_timestamp() returns pg_catalog.timestamptz language sql as $$ insert into pg_temp.hijacked values ('clock_timestamp'); select '2000-01-01'::pg_catalog.timestamptz $$;
create function pg_temp._no_queue(pg_catalog.text) returns void language sql as $$ insert into pg_temp.hijacked values ('_no_queue') $$;
create function pg_temp.same(pg_catalog.text, pg_catalog.text) returns boolean language sql as $$ insert into pg_temp.hijacked values ('='); select true $$;
create operator pg_temp.= (function = pg_temp.same, leftarg = pg_catalog.text, rightarg = pg_catalog.text);
reset role;
create schema workq_tap_evil authorization workq_tap_caller;
set local role workq_tap_caller;
create function workq_tap_evil.same(pg_catalog.text, pg_catalog.text) returns boolean language plpgsql as $$ begin raise 'hijacked'; end $$;
create operator workq_tap_evil.= (function = workq_tap_evil.same, leftarg = pg_catalog.text, rightarg = pg_catalog.text);
create function workq_tap_evil.nextval(pg_catalog.text) returns bigint language plpgsql as $$ begin raise 'hijacked'; end $$;
create function workq_tap_evil.clock_timestamp() returns pg_catalog.timestamptz language plpgsql as $$ begin raise 'hijacked'; end $$;
reset role;
grant select, insert on pg_temp.hijacked to public;
select throws_ok($$ select pg_temp.as_role('workq_tap_caller', 'set local search_path = pg_temp, workq_tap_evil, pg_catalog; select clock_timestamp()') $$, 'P0001', 'hijacked', 'the traps are set');
select throws_ok($$ select pg_temp.as_role('workq_tap_caller', 'set local search_path = pg_temp, workq_tap_evil, pg_catalog; select ''x''::text') $$, '23514', null, 'all of them');
select pg_temp.as_role('workq_tap_caller', 'set local search_path = pg_temp, workq_tap_evil, pg_catalog;
  select workq.enqueue(''q'', kind => ''k''); select workq.enqueue(''q'');
  select workq.receive(''q''); select workq.ack(''q'', 0, 0); set local search_path = pg_catalog, public') as sprung \gset
drop domain pg_temp.text;
drop domain pg_temp.timestamptz;
select is((select count(*) from pg_temp.hijacked), 0::bigint, 'none was sprung');
select is((select count(*) from pg_temp.queue) + (select count(*) from pg_temp.delivery) + (select count(*) from pg_temp.message) + (select count(*) from pg_temp.attempt), 0::bigint, 'the temporary tables are empty');
select is((select count(*) from workq.message m where m.created_at > pg_catalog.now() - interval '1 hour'), 3::bigint, 'ours have what was enqueued');

-- A queue's name is never SQL.
select throws_ok(format($$ select workq.%s $$, c), 'WQ001', null, 'a name full of SQL: ' || split_part(c, '(', 1)) from unnest(array[
  $$receive('q''; drop table workq.queue; --')$$, $$enqueue('q''); drop table workq.queue; --')$$, $$stats('q'' or true; --')$$, $$drop_queue('q"; drop table workq.queue; --')$$, $$idle('q''; select pg_notify(1,2); --')$$]) c;
select is((select count(*) from workq.queues()), 1::bigint, 'the queues are all there');

select * from finish();
rollback;
