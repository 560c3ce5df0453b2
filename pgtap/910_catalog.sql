-- What every function carries, and the whole of the public signatures: names, order and defaults of
-- arguments, results and volatility. They are public: a change of meaning gets a new name.
begin;
select * from no_plan();  -- one for each function that there is

create temp table contract (name text, arguments text, result text, volatility text);
insert into contract values
  ('create_queue', 'queue text, visibility interval DEFAULT NULL::interval, visibility_factor double precision DEFAULT NULL::double precision, max_visibility interval DEFAULT NULL::interval, max_attempts integer DEFAULT NULL::integer, retry_delays interval[] DEFAULT NULL::interval[], retry_jitter double precision DEFAULT NULL::double precision, ttl interval DEFAULT NULL::interval, retention interval DEFAULT NULL::interval, dead_retention interval DEFAULT NULL::interval, dead_letter_queue text DEFAULT NULL::text, history text DEFAULT NULL::text, keyed text DEFAULT NULL::text, key_limit integer DEFAULT NULL::integer, clear_dead_on_ack boolean DEFAULT NULL::boolean, max_in_flight integer DEFAULT NULL::integer, rate_limit integer DEFAULT NULL::integer, rate_period interval DEFAULT NULL::interval, lifo_after interval DEFAULT NULL::interval, max_payload_bytes integer DEFAULT NULL::integer, max_depth bigint DEFAULT NULL::bigint, dedupe_scope text DEFAULT NULL::text, notify boolean DEFAULT NULL::boolean, paused boolean DEFAULT NULL::boolean', 'workq.queue_info', 'v'),
  ('alter_queue', 'queue text, visibility interval DEFAULT NULL::interval, visibility_factor double precision DEFAULT NULL::double precision, max_visibility interval DEFAULT NULL::interval, max_attempts integer DEFAULT NULL::integer, retry_delays interval[] DEFAULT NULL::interval[], retry_jitter double precision DEFAULT NULL::double precision, ttl interval DEFAULT NULL::interval, retention interval DEFAULT NULL::interval, dead_retention interval DEFAULT NULL::interval, dead_letter_queue text DEFAULT NULL::text, history text DEFAULT NULL::text, keyed text DEFAULT NULL::text, key_limit integer DEFAULT NULL::integer, clear_dead_on_ack boolean DEFAULT NULL::boolean, max_in_flight integer DEFAULT NULL::integer, rate_limit integer DEFAULT NULL::integer, rate_period interval DEFAULT NULL::interval, lifo_after interval DEFAULT NULL::interval, max_payload_bytes integer DEFAULT NULL::integer, max_depth bigint DEFAULT NULL::bigint, dedupe_scope text DEFAULT NULL::text, notify boolean DEFAULT NULL::boolean, paused boolean DEFAULT NULL::boolean, clear text[] DEFAULT NULL::text[]', 'workq.queue_info', 'v'),
  ('pause_queue', 'queue text', 'workq.queue_info', 'v'),
  ('resume_queue', 'queue text', 'workq.queue_info', 'v'),
  ('purge_queue', 'queue text', 'bigint', 'v'),
  ('drop_queue', 'queue text, force boolean DEFAULT false', 'void', 'v'),
  ('queues', 'queue text DEFAULT NULL::text', 'SETOF workq.queue_info', 's'),
  ('enqueue', 'queue text, payload jsonb DEFAULT NULL::jsonb, body bytea DEFAULT NULL::bytea, content_type text DEFAULT NULL::text, kind text DEFAULT NULL::text, headers jsonb DEFAULT NULL::jsonb, priority integer DEFAULT NULL::integer, delay interval DEFAULT NULL::interval, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, group_key text DEFAULT NULL::text, dedupe_key text DEFAULT NULL::text, dedupe_for interval DEFAULT NULL::interval, ttl interval DEFAULT NULL::interval, max_attempts integer DEFAULT NULL::integer', 'workq.receipt', 'v'),
  ('enqueue_many', 'queue text, payloads jsonb[] DEFAULT NULL::jsonb[], bodies bytea[] DEFAULT NULL::bytea[], content_types text[] DEFAULT NULL::text[], kinds text[] DEFAULT NULL::text[], headers jsonb[] DEFAULT NULL::jsonb[], priorities integer[] DEFAULT NULL::integer[], run_ats timestamp with time zone[] DEFAULT NULL::timestamp with time zone[], group_keys text[] DEFAULT NULL::text[], dedupe_keys text[] DEFAULT NULL::text[], dedupe_for interval DEFAULT NULL::interval, ttl interval DEFAULT NULL::interval, max_attempts integer DEFAULT NULL::integer', 'SETOF workq.receipt', 'v'),
  ('receive', 'queue text, max_messages integer DEFAULT 1, visibility interval DEFAULT NULL::interval, worker text DEFAULT NULL::text', 'SETOF workq.received', 'v'),
  ('idle', 'queue text', 'workq.wakeup', 'v'),
  ('ack', 'queue text, id bigint, lease bigint, result jsonb DEFAULT NULL::jsonb, strict boolean DEFAULT false', 'text', 'v'),
  ('fail', 'queue text, id bigint, lease bigint, error text DEFAULT NULL::text, retry_in interval DEFAULT NULL::interval, permanent boolean DEFAULT false, details jsonb DEFAULT NULL::jsonb', 'text', 'v'),
  ('extend', 'queue text, id bigint, lease bigint, visibility interval DEFAULT NULL::interval', 'timestamp with time zone', 'v'),
  ('release', 'queue text, id bigint, lease bigint, delay interval DEFAULT ''00:00:00''::interval', 'text', 'v'),
  ('report', 'queue text, id bigint, lease bigint, status jsonb', 'text', 'v'),
  ('ack_many', 'queue text, ids bigint[], leases bigint[], results jsonb[] DEFAULT NULL::jsonb[]', 'SETOF workq.settled', 'v'),
  ('fail_many', 'queue text, ids bigint[], leases bigint[], errors text[] DEFAULT NULL::text[], retry_ins interval[] DEFAULT NULL::interval[], permanents boolean[] DEFAULT NULL::boolean[], details jsonb[] DEFAULT NULL::jsonb[]', 'SETOF workq.settled', 'v'),
  ('extend_many', 'queue text, ids bigint[], leases bigint[], visibilities interval[] DEFAULT NULL::interval[]', 'SETOF workq.settled', 'v'),
  ('release_many', 'queue text, ids bigint[], leases bigint[], delays interval[] DEFAULT NULL::interval[]', 'SETOF workq.settled', 'v'),
  ('cancel', 'queue text, id bigint', 'text', 'v'),
  ('run_now', 'queue text, id bigint', 'boolean', 'v'),
  ('redrive', 'queue text, to_queue text DEFAULT NULL::text, max_messages integer DEFAULT 1000, reason text DEFAULT NULL::text, ids bigint[] DEFAULT NULL::bigint[], dry_run boolean DEFAULT false', 'bigint', 'v'),
  ('peek', 'queue text, max_messages integer DEFAULT 10, state text DEFAULT NULL::text', 'SETOF workq.message_info', 'v'),
  ('get', 'queue text, id bigint', 'workq.message_info', 'v'),
  ('history', 'queue text, id bigint', 'SETOF workq.attempt_info', 's'),
  ('dead_letters', 'queue text, max_messages integer DEFAULT 100, reason text DEFAULT NULL::text, kind text DEFAULT NULL::text', 'SETOF workq.dead_letter_info', 's'),
  ('stats', 'queue text DEFAULT NULL::text', 'SETOF workq.queue_stats', 'v'),
  ('sweep', 'max_rows integer DEFAULT 1000', 'workq.sweep_counts', 'v'),
  ('maintain', '', 'SETOF workq.maintenance', 'v'),
  ('version', '', 'text', 'i');
select is(pg_get_function_arguments(p.oid), c.arguments, 'arguments of ' || c.name)
from contract c left join pg_proc p on p.pronamespace = 'workq'::regnamespace and p.proname = c.name order by c.name;
select is(pg_get_function_result(p.oid) || ' ' || p.provolatile::text, c.result || ' ' || c.volatility, 'result and volatility of ' || c.name)
from contract c left join pg_proc p on p.pronamespace = 'workq'::regnamespace and p.proname = c.name order by c.name;
select set_eq($$ select p.proname::text from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.proname !~ '^_' $$, 'select name from contract', 'these are public, and no other');
select is((select string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' order by a.attnum) from pg_attribute a
    where a.attrelid = ('workq.' || t.name)::regclass and a.attnum > 0 and not a.attisdropped), t.columns, 'columns of ' || t.name)
from (values
  ('receipt', 'id bigint, duplicate boolean, visible_at timestamp with time zone'),
  ('received', 'id bigint, lease bigint, attempt integer, max_attempts integer, lease_until timestamp with time zone, enqueued_at timestamp with time zone, priority integer, group_key text, kind text, headers jsonb, payload jsonb, body bytea, content_type text'),
  ('wakeup', 'channel text, next_due timestamp with time zone'),
  ('settled', 'ord integer, id bigint, outcome text'),
  ('sweep_counts', 'exhausted integer, expired integer, dead_removed integer'),
  ('maintenance', 'action text, target text'),
  ('queue_info', 'queue text, created_at timestamp with time zone, visibility interval, visibility_factor double precision, max_visibility interval, max_attempts integer, retry_delays interval[], retry_jitter double precision, ttl interval, retention interval, dead_retention interval, dead_letter_queue text, history text, max_payload_bytes integer, max_depth bigint, notify boolean, paused boolean'),
  ('message_info', 'id bigint, queue text, state text, attempt integer, max_attempts integer, lease bigint, visible_at timestamp with time zone, received_at timestamp with time zone, enqueued_at timestamp with time zone, expires_at timestamp with time zone, finished_at timestamp with time zone, priority integer, worker text, status jsonb, result jsonb, reason text, error text, kind text, headers jsonb, payload jsonb, body bytea, content_type text'),
  ('attempt_info', 'id bigint, attempt integer, lease bigint, started_at timestamp with time zone, finished_at timestamp with time zone, outcome text, reason text, worker text, error text, details jsonb, result jsonb'),
  ('dead_letter_info', 'id bigint, died_at timestamp with time zone, reason text, attempt integer, max_attempts integer, priority integer, error text, details jsonb, enqueued_at timestamp with time zone, kind text, headers jsonb, payload jsonb, body bytea, content_type text'),
  ('queue_stats', 'queue text, ready bigint, delayed bigint, leased bigint, retrying bigint, dead bigint, oldest_ready interval, enqueued_per_second double precision, acked_per_second double precision, failed_per_second double precision, paused boolean, estimated boolean')) t (name, columns);

-- One name, one signature.
select is(count(*), 1::bigint, p.proname || ' has no overloads') from pg_proc p where p.pronamespace = 'workq'::regnamespace group by p.proname order by p.proname;
select is((select count(*) from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.prokind <> 'f'), 0::bigint, 'functions only: no procedures, aggregates, window functions');
select is((select count(*) from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.provariadic <> 0), 0::bigint, 'none is variadic');
select is((select count(*) from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.proname !~ '^_' and p.proisstrict), 0::bigint, 'no public function answers null to null unseen');

-- Each function says what it is for. A public one has its path pinned; a helper runs under that of the
-- public function that called it (nobody else may call it, see 900_security.sql), or pins the same.
select ok(length(obj_description(p.oid, 'pg_proc')) > 20, p.proname || ' has a comment') from pg_proc p where p.pronamespace = 'workq'::regnamespace order by p.proname;
select is((select c from unnest(p.proconfig) c where c ~ '^search_path='), case when p.proname !~ '^_' or p.proconfig::text ~ 'search_path' then 'search_path=pg_catalog, pg_temp' end, p.proname || ': its path')
from pg_proc p where p.pronamespace = 'workq'::regnamespace order by p.proname;
select is(l.lanname in ('sql', 'plpgsql'), true, p.proname || ' is in a trusted language of every server') from pg_proc p join pg_language l on l.oid = p.prolang where p.pronamespace = 'workq'::regnamespace order by p.proname;
select matches(p.prosrc, E'\n#variable_conflict use_column\n', p.proname || ' prefers columns')
from pg_proc p join pg_language l on l.oid = p.prolang where p.pronamespace = 'workq'::regnamespace and l.lanname = 'plpgsql' order by p.proname;
select ok(length(obj_description(c.oid, 'pg_class')) > 20, c.relname || ' has a comment')
from pg_class c where c.relnamespace = 'workq'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition order by c.relname;

-- A comment of a public function names its errors.
select matches(obj_description(p.oid, 'pg_proc'), 'WQ001', p.proname || ' says WQ001') from pg_proc p
where p.pronamespace = 'workq'::regnamespace and p.proname !~ '^_' and p.proargnames[1] = 'queue' and p.proname <> 'create_queue' order by p.proname;

-- The functions that are called all the time: pinned plans.
select is(array(select s from unnest(array['enable_seqscan=off', 'enable_sort=off', 'jit=off', 'plan_cache_mode=force_generic_plan']) s
    where not p.proconfig @> array[s]), '{}', n || ' has its plans pinned')
from unnest(array['enqueue', 'enqueue_many', 'receive', 'idle', 'ack', 'ack_many', 'fail', 'fail_many', 'extend', 'extend_many', 'release', 'release_many', 'report', 'cancel', 'run_now', 'redrive', 'peek', 'get', 'sweep']) n
left join pg_proc p on p.pronamespace = 'workq'::regnamespace and p.proname = n;
-- No function sets anything else but these and its lock_timeout.
select is(array(select split_part(s, '=', 1) from unnest(p.proconfig) s where split_part(s, '=', 1) not in ('search_path', 'lock_timeout', 'datestyle', 'timezone', 'enable_seqscan', 'enable_bitmapscan', 'enable_hashjoin',
    'enable_mergejoin', 'enable_sort', 'jit', 'plan_cache_mode') and s !~* '^(datestyle|timezone)='), '{}', p.proname || ' sets nothing else')
from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.proconfig is not null order by p.proname;

-- No EXCEPTION block where it would cost a subtransaction a message.
select unalike(p.prosrc, '%exception when%', p.proname || ' has no subtransaction')
from pg_proc p where p.pronamespace = 'workq'::regnamespace and p.proname ~ '^_?(enqueue|enqueue_many|receive|idle|ack|ack_many|fail|fail_many|extend|extend_many|release|release_many|report|bury|wake|enter|lock|outcomes)$' order by p.proname;

select * from finish();
rollback;
