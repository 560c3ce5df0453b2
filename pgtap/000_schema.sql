-- What an installation makes: schema, tables, types, sequences, partitions and indexes. No more and no less.
begin;
select plan(44);

select has_schema('workq');
select has_table('public', 'workq_schema_version', 'tern keeps its version beside the schema');
select schema_owner_is('workq', (select pg_get_userbyid(datdba) from pg_database where datname = current_database()),
  'the ordinary role that migrated owns the schema');

-- Tables.
select set_eq(
  $$ select c.relname::text, c.relkind::text from pg_class c where c.relnamespace = 'workq'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f') $$,
  $$ values ('queue', 'r'), ('message', 'p'), ('message_tail', 'r'), ('delivery', 'r'), ('attempt', 'p'), ('attempt_tail', 'r'), ('dead_letter', 'r') $$,
  'these tables and no other, no views');
select tables_owner.ok
from (
  select is(pg_get_userbyid(c.relowner), pg_get_userbyid(n.nspowner), c.relname || ' belongs to the owner of the schema') as ok
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = 'workq' and c.relkind in ('r', 'p')
  order by c.relname) tables_owner;

select is(
  (select string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || case when a.attnotnull then ' not null' else '' end, ', ' order by a.attnum)
   from pg_attribute a where a.attrelid = ('workq.' || t.name)::regclass and a.attnum > 0 and not a.attisdropped),
  t.columns, 'columns of ' || t.name)
from (values
  ('message', 'id bigint not null, created_at timestamp with time zone not null, queue_id integer not null, payload jsonb, headers jsonb, kind text, content_type text, body bytea'),
  ('delivery', 'message_id bigint not null, created_at timestamp with time zone not null, visible_at timestamp with time zone not null, queue_id integer not null, attempt integer not null, lease bigint, received_at timestamp with time zone, expires_at timestamp with time zone, max_attempts integer, priority smallint not null, worker text, status jsonb'),
  ('attempt', 'message_id bigint not null, finished_at timestamp with time zone not null, started_at timestamp with time zone, lease bigint, queue_id integer not null, attempt integer not null, outcome text not null, reason text, worker text, error text, details jsonb, result jsonb'),
  ('dead_letter', 'queue_id integer not null, message_id bigint not null, died_at timestamp with time zone not null, reason text not null, attempt integer not null, max_attempts integer, priority smallint not null, error text, details jsonb, enqueued_at timestamp with time zone not null, kind text, headers jsonb, payload jsonb, content_type text, body bytea'),
  ('queue', 'id integer not null, name text not null, created_at timestamp with time zone not null, visibility interval not null, visibility_factor double precision not null, max_visibility interval not null, max_attempts integer, retry_delays interval[] not null, retry_jitter double precision not null, ttl interval, retention interval not null, dead_retention interval not null, dead_letter_queue integer, history text not null, max_payload_bytes integer not null, max_depth bigint, notify boolean not null, paused boolean not null, floor regclass not null, next_glance regclass not null, next_look regclass not null, sleepers regclass not null, quiet regclass not null, next_due_look regclass not null, depth regclass not null')
) t (name, columns);

-- Keys and indexes.
select col_is_pk('workq', 'queue', 'id', 'a queue has a number');
select col_is_unique('workq', 'queue', 'name', 'a name is taken once');
select col_is_pk('workq', 'delivery', array['message_id', 'queue_id'], 'a message is in a queue once');
select col_is_pk('workq', 'dead_letter', array['queue_id', 'message_id'], 'a message is dead in a queue once');
select col_type_is('workq', 'queue', 'floor', 'regclass', 'sequences are stored as regclass: oids do not survive a dump');
select set_eq(
  $$ select i.indexrelid::regclass::text from pg_index i join pg_class c on c.oid = i.indrelid
     where c.relnamespace = 'workq'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition $$,
  array['workq.queue_pkey', 'workq.queue_name_key', 'workq.message_id_idx', 'workq.delivery_pkey', 'workq.delivery_visible_idx',
    'workq.attempt_message_idx', 'workq.dead_letter_pkey', 'workq.dead_letter_died_idx'],
  'these indexes and no other: each costs something at every receive');
select index_is_unique('workq', 'delivery', 'delivery_pkey');
select is(pg_get_indexdef('workq.delivery_visible_idx'::regclass),
  'CREATE INDEX delivery_visible_idx ON workq.delivery USING btree (queue_id, priority, visible_at)', 'the index that receive walks');
select is((select count(*) from pg_trigger t join pg_class c on c.oid = t.tgrelid
  where c.relnamespace = 'workq'::regnamespace and not t.tgisinternal), 0::bigint, 'no triggers');
select is((select string_agg(c.conrelid::regclass::text, ',') from pg_constraint c
  where c.contype = 'f' and c.connamespace = 'workq'::regnamespace), 'workq.queue', 'no foreign key where messages come and go');

select throws_ok(format($$ insert into workq.queue (name, floor, next_glance, next_look, sleepers, quiet, next_due_look, depth)
  values (%L, 'workq.message_id', 'workq.message_id', 'workq.message_id', 'workq.message_id', 'workq.message_id', 'workq.message_id', 'workq.message_id') $$, n.name),
  '23514', null, 'the table refuses the name ' || left(to_json(n.name)::text, 20))
from (values (''), ('Q'), ('9a'), ('a b'), ('a''b'), ('a;b'), (repeat('a', 48))) n (name);

-- Partitions.
select is((select pg_get_partkeydef('workq.message'::regclass)), 'RANGE (created_at)', 'message is partitioned by created_at');
select is((select pg_get_partkeydef('workq.attempt'::regclass)), 'RANGE (finished_at)', 'attempt is partitioned by finished_at');
select is(pg_get_expr(c.relpartbound, c.oid), 'FOR VALUES FROM (MINVALUE) TO (MAXVALUE)', c.relname || ' takes everything at first')
from pg_class c where c.oid in ('workq.message_tail'::regclass, 'workq.attempt_tail'::regclass) order by c.relname;
select is((select count(*) from pg_partitioned_table p where p.partdefid <> 0), 0::bigint, 'no DEFAULT partition');

-- Types and sequences.
select set_eq(
  $$ select c.relname::text from pg_class c where c.relnamespace = 'workq'::regnamespace and c.relkind = 'c' $$,
  array['receipt', 'received', 'wakeup', 'settled', 'queue_info', 'message_info', 'attempt_info', 'dead_letter_info', 'queue_stats', 'sweep_counts', 'maintenance'],
  'these composite types and no other');
select is((select count(*) from pg_enum e join pg_type t on t.oid = e.enumtypid where t.typnamespace = 'workq'::regnamespace), 0::bigint, 'no enums: words are text');
select set_eq(
  $$ select c.relname::text from pg_class c where c.relnamespace = 'workq'::regnamespace and c.relkind = 'S' $$,
  array['queue_id_seq', 'message_id', 'lease_number', 'sweep_message', 'sweep_due'],
  'these sequences and no other, before there is a queue');
select is(s.cache_size, 1::bigint, s.sequencename || ' is not cached: numbers grow over all sessions')
from pg_sequences s where s.schemaname = 'workq' and s.sequencename in ('message_id', 'lease_number') order by s.sequencename;

-- A queue brings six sequences of its own.
select workq.create_queue('q') is null \g /dev/null
select is((select count(*) from pg_class c where c.relnamespace = 'workq'::regnamespace and c.relkind = 'S'
    and c.oid in (select unnest(array[q.floor, q.next_glance, q.next_look, q.sleepers, q.quiet, q.next_due_look, q.depth]) from workq.queue q)), 7::bigint,
  'a queue has seven sequences of its own');

select * from finish();
rollback;
