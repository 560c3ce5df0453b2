-- Sending.
--
-- In:  arrays of one length; what is null takes its default.
-- Out: a receipt for each message, in the order given.
-- Tables: message and delivery, one row each a message. Part of the caller's transaction.

create or replace function workq.enqueue_many(
  queue text, payloads jsonb[] default null, bodies bytea[] default null, content_types text[] default null,
  kinds text[] default null, headers jsonb[] default null, priorities int[] default null,
  run_ats timestamptz[] default null, group_keys text[] default null, dedupe_keys text[] default null,
  dedupe_for interval default null, ttl interval default null, max_attempts int default null)
returns setof workq.receipt
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_queue workq.queue;
  v_count int;
begin
  select q.* into v_queue from workq.queue q where q.name = enqueue_many.queue;
  if not found then
    perform workq._no_queue(queue);
  end if;

  v_count := greatest(
    cardinality(payloads), cardinality(bodies), cardinality(content_types), cardinality(kinds), cardinality(headers),
    cardinality(priorities), cardinality(run_ats), cardinality(group_keys), cardinality(dedupe_keys), 0);
  if v_count <> any (array[
    coalesce(cardinality(payloads), v_count), coalesce(cardinality(bodies), v_count),
    coalesce(cardinality(content_types), v_count), coalesce(cardinality(kinds), v_count),
    coalesce(cardinality(headers), v_count), coalesce(cardinality(priorities), v_count),
    coalesce(cardinality(run_ats), v_count)])
    or greatest(array_ndims(payloads), array_ndims(bodies), array_ndims(content_types), array_ndims(kinds),
      array_ndims(headers), array_ndims(priorities), array_ndims(run_ats)) > 1
  then
    perform workq._invalid('arrays', format('of up to %s elements', v_count), 'payloads, bodies, content_types, kinds, headers, priorities and run_ats: those given are of one dimension and one length');
  end if;
  if group_keys is not null or dedupe_keys is not null or dedupe_for is not null then
    perform workq._not_built(case when group_keys is not null then 'group_key' when dedupe_keys is not null then 'dedupe_key' else 'dedupe_for' end);
  end if;
  if ttl not between interval '1 millisecond' and interval '100 years' then
    perform workq._invalid('ttl', ttl::text, '1 millisecond to 100 years');
  end if;
  if max_attempts < 1 then
    perform workq._invalid('max_attempts', max_attempts::text, '1 or more; null for the setting of the queue');
  end if;

  perform workq._enter(v_queue);
  if v_queue.max_depth is not null then
    perform workq._check_depth(v_queue, v_count);
  end if;

  return query
    with input as materialized (
      select
        nextval('workq.message_id') as id, i.ord, i.payload, i.body, i.content_type, i.kind, i.headers,
        coalesce(i.priority, 5) as priority,
        -- In a very large batch a microsecond a hundred, so that its index entries are not all of one time.
        greatest(i.run_at, v_now + i.ord / 100 * interval '1 microsecond') as visible_at
      from unnest(payloads, bodies, content_types, kinds, enqueue_many.headers, priorities, run_ats)
        with ordinality i (payload, body, content_type, kind, headers, priority, run_at, ord)
      where case
        when (pg_column_size(i.payload) > v_queue.max_payload_bytes
          or octet_length(i.body) > v_queue.max_payload_bytes
          or pg_column_size(i.payload) + octet_length(i.body) > v_queue.max_payload_bytes
          or i.priority not between 0 and 10
          or i.run_at > v_now + interval '100 years'
          or i.headers is not null and (pg_column_size(i.headers) > 16384 or jsonb_typeof(i.headers) <> 'object')
          or octet_length(i.kind) > 256
          or octet_length(i.content_type) > 256) is true
          then workq._reject(v_queue, i.ord, i.payload, i.body, i.content_type, i.kind, i.headers, i.priority, i.run_at)
        else true
      end
        and exists (select from workq.queue q where q.id = v_queue.id)
    ), stored as (
      insert into workq.message (id, created_at, queue_id, payload, headers, kind, content_type, body)
      select i.id, v_now, v_queue.id, i.payload, i.headers, i.kind, i.content_type, i.body
      from input i
    ), placed as (
      insert into workq.delivery (message_id, created_at, visible_at, queue_id, expires_at, max_attempts, priority)
      select i.id, v_now, i.visible_at, v_queue.id, i.visible_at + coalesce(enqueue_many.ttl, v_queue.ttl), enqueue_many.max_attempts, i.priority
      from input i
    )
    select i.id, false, i.visible_at from input i order by i.ord;
  if found then
    perform workq._wake(v_queue, case when run_ats is null then v_now else (select min(coalesce(r, v_now)) from unnest(run_ats) r) end);
  elsif v_count > 0 then
    perform workq._no_queue(queue);  -- it was dropped while this call waited for its door
  end if;
end;
$$;
comment on function workq.enqueue_many is 'puts messages into a queue, in the caller''s transaction; the arrays given are of one length, and so many messages there are; returns receipts in the order given. A run_at that has passed means now. Arguments as in enqueue. WQ001 unknown queue, WQ004 over max_payload_bytes, WQ005 queue is full, 22023 out of range (nothing is enqueued then), 0A000 not supported yet: group_keys, dedupe_keys, dedupe_for';

create or replace function workq.enqueue(
  queue text, payload jsonb default null, body bytea default null, content_type text default null,
  kind text default null, headers jsonb default null, priority int default null, delay interval default null,
  run_at timestamptz default null, group_key text default null, dedupe_key text default null,
  dedupe_for interval default null, ttl interval default null, max_attempts int default null)
returns workq.receipt
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_receipt workq.receipt;
begin
  if delay is not null and run_at is not null then
    perform workq._invalid('delay', delay::text, 'null when run_at is given: they exclude each other');
  elsif delay not between interval '0' and interval '100 years' then
    perform workq._invalid('delay', delay::text, '0 to 100 years');
  end if;
  select r.* into v_receipt
  from workq.enqueue_many(
    queue, array[payload], array[body], array[content_type], array[kind], array[headers], array[priority],
    array[coalesce(run_at, clock_timestamp() + delay)],
    case when group_key is not null then array[group_key] end,
    case when dedupe_key is not null then array[dedupe_key] end,
    dedupe_for, ttl, max_attempts) r;
  return v_receipt;
end;
$$;
comment on function workq.enqueue is 'puts a message into a queue, in the caller''s transaction; returns its receipt. payload: JSON, body: bytes with their content_type, either, both or neither, together up to max_payload_bytes as PostgreSQL holds them; kind and content_type up to 256 bytes; headers: a JSON object up to 16 KiB; priority 0 (first) to 10 (last), default 5; delay or run_at: not before (0 to 100 years ahead; what has passed means now); ttl: dead letter when unfinished this long after it first became visible, default the setting of the queue; max_attempts: default the setting of the queue. WQ001 unknown queue, WQ004 over max_payload_bytes, WQ005 queue is full, 22023 out of range, 0A000 not supported yet: group_key, dedupe_key, dedupe_for';

create or replace function workq._reject(
  q workq.queue, ord bigint, payload jsonb, body bytea, content_type text, kind text, headers jsonb, priority int, run_at timestamptz)
returns boolean
language plpgsql
stable
as $$
#variable_conflict use_column
declare
  v_bytes bigint := coalesce(pg_column_size(payload), 0)::bigint + coalesce(octet_length(body), 0);
begin
  if v_bytes > q.max_payload_bytes then
    raise exception 'payload is over the limit of the queue' using errcode = 'WQ004',
      detail = format('queue is %L, message %s has %s bytes, max_payload_bytes is %s', q.name, ord, v_bytes, q.max_payload_bytes),
      hint = 'store it elsewhere and enqueue a reference, or raise max_payload_bytes (up to 268435456) with workq.alter_queue(...)';
  end if;
  return case
    when priority not between 0 and 10 then workq._invalid('priority', priority::text, '0 (first) to 10 (last)')
    when run_at > clock_timestamp() + interval '100 years' then workq._invalid('run_at', run_at::text, 'at most 100 years ahead')
    when octet_length(kind) > 256 then workq._invalid('kind', kind, 'up to 256 bytes')
    when octet_length(content_type) > 256 then workq._invalid('content_type', content_type, 'up to 256 bytes')
    else workq._invalid('headers', headers::text, 'a JSON object of up to 16384 bytes')
  end;
end;
$$;
comment on function workq._reject is 'raises for the message that may not be enqueued: WQ004 or 22023';

-- workq._check_depth: is there room for so many more?
-- The depth is a sample that serves for a second at least, and for 20 times as long as counting took.
-- A sequence holds it beside the second until which it serves: 31 bits of depth, the second above them.
create or replace function workq._check_depth(q workq.queue, more int)
returns void
language plpgsql
volatile
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_second bigint := floor(date_part('epoch', v_now))::bigint;
  v_sample bigint := pg_sequence_last_value(q.depth);
  v_depth bigint;
begin
  if v_sample >> 31 between v_second and v_second + 30 then
    v_depth := v_sample & 2147483647;
  else
    select count(*) into v_depth
    from (select from workq.delivery d where d.queue_id = q.id limit least(q.max_depth, 2147483647)) d;
    perform setval(q.depth,
      (v_second + least(1 + ceil(20 * date_part('epoch', clock_timestamp() - v_now)), 30)::bigint << 31) | v_depth);
  end if;
  if v_depth + more > q.max_depth then
    raise exception 'queue is full' using errcode = 'WQ005',
      detail = format('queue is %L, max_depth is %s, %s unfinished, %s more', q.name, q.max_depth, v_depth, more),
      hint = 'try again when workers have caught up, in smaller batches, or raise max_depth with workq.alter_queue(...)';
  end if;
end;
$$;
comment on function workq._check_depth is 'raises WQ005 when so many more messages would pass max_depth, by a sample of the depth that is about a second old';
