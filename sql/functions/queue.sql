-- Queues and their settings.
--
-- Changes of queues are serialised by a lock on the table that senders and receivers do not meet:
-- they only read it.

-- workq._settings: a queue row with those settings replaced that are given. Raises for what is out of range.
create or replace function workq._settings(
  q workq.queue, visibility interval, visibility_factor double precision, max_visibility interval, max_attempts int,
  retry_delays interval[], retry_jitter double precision, ttl interval, retention interval, dead_retention interval,
  dead_letter_queue text, history text, keyed text, key_limit int, clear_dead_on_ack boolean, max_in_flight int,
  rate_limit int, rate_period interval, lifo_after interval, max_payload_bytes int, max_depth bigint, dedupe_scope text,
  notify boolean, paused boolean)
returns workq.queue
language plpgsql
stable
as $$
#variable_conflict use_column
declare
  v_queue workq.queue := q;
  v_dead_letter_queue int;
  v_century interval := interval '100 years';
  v_not_built text;
begin
  v_not_built := case
    when keyed is not null then 'keyed'
    when key_limit is not null then 'key_limit'
    when clear_dead_on_ack is not null then 'clear_dead_on_ack'
    when max_in_flight is not null then 'max_in_flight'
    when rate_limit is not null then 'rate_limit'
    when rate_period is not null then 'rate_period'
    when lifo_after is not null then 'lifo_after'
    when dedupe_scope is not null then 'dedupe_scope'
  end;
  if v_not_built is not null then
    perform workq._not_built(v_not_built);
  end if;

  v_queue.visibility := coalesce(visibility, v_queue.visibility);
  v_queue.visibility_factor := coalesce(visibility_factor, v_queue.visibility_factor);
  v_queue.max_visibility := coalesce(max_visibility, v_queue.max_visibility);
  v_queue.max_attempts := coalesce(max_attempts, v_queue.max_attempts);
  v_queue.retry_delays := case when retry_delays is null then v_queue.retry_delays else array(select unnest(retry_delays)) end;
  v_queue.retry_jitter := coalesce(retry_jitter, v_queue.retry_jitter);
  v_queue.ttl := coalesce(ttl, v_queue.ttl);
  v_queue.retention := coalesce(retention, v_queue.retention);
  v_queue.dead_retention := coalesce(dead_retention, v_queue.dead_retention);
  v_queue.history := coalesce(history, v_queue.history);
  v_queue.max_payload_bytes := coalesce(max_payload_bytes, v_queue.max_payload_bytes);
  v_queue.max_depth := coalesce(max_depth, v_queue.max_depth);
  v_queue.notify := coalesce(notify, v_queue.notify);
  v_queue.paused := coalesce(paused, v_queue.paused);

  if v_queue.max_visibility not between interval '1 millisecond' and interval '365 days' then
    perform workq._invalid('max_visibility', v_queue.max_visibility::text, '1 millisecond to 365 days');
  elsif v_queue.visibility not between interval '1 millisecond' and v_queue.max_visibility then
    perform workq._invalid(case when visibility is null then 'max_visibility' else 'visibility' end,
      coalesce(visibility, max_visibility)::text, format('visibility, which is %s: 1 millisecond to max_visibility, which is %s', v_queue.visibility, v_queue.max_visibility));
  elsif v_queue.visibility_factor not between 1 and 100 then
    perform workq._invalid('visibility_factor', v_queue.visibility_factor::text, '1 to 100');
  elsif v_queue.max_attempts < 1 then
    perform workq._invalid('max_attempts', v_queue.max_attempts::text, '1 or more; alter_queue(..., clear => ''{max_attempts}'') for no limit');
  elsif array_ndims(retry_delays) > 1 or cardinality(v_queue.retry_delays) not between 1 and 100
    or exists (select from unnest(v_queue.retry_delays) d where d is null or d not between interval '0' and interval '365 days')
  then
    perform workq._invalid('retry_delays', v_queue.retry_delays::text, '1 to 100 intervals, each 0 to 365 days');
  elsif v_queue.retry_jitter not between 0 and 1 then
    perform workq._invalid('retry_jitter', v_queue.retry_jitter::text, '0 to 1');
  elsif v_queue.ttl not between interval '1 millisecond' and v_century then
    perform workq._invalid('ttl', v_queue.ttl::text, '1 millisecond to 100 years; alter_queue(..., clear => ''{ttl}'') for none');
  elsif v_queue.retention not between interval '0' and v_century then
    perform workq._invalid('retention', v_queue.retention::text, '0 to 100 years');
  elsif v_queue.dead_retention not between interval '0' and v_century then
    perform workq._invalid('dead_retention', v_queue.dead_retention::text, '0 to 100 years');
  elsif v_queue.history not in ('all', 'failures', 'none') then
    perform workq._invalid('history', v_queue.history, 'all, failures or none');
  elsif v_queue.max_payload_bytes not between 1 and 268435456 then
    perform workq._invalid('max_payload_bytes', v_queue.max_payload_bytes::text, '1 to 268435456 (256 MiB)');
  elsif v_queue.max_depth < 1 then
    perform workq._invalid('max_depth', v_queue.max_depth::text, '1 or more; alter_queue(..., clear => ''{max_depth}'') for no limit');
  end if;

  if dead_letter_queue is not null then
    select k.id into v_dead_letter_queue from workq.queue k where k.name = _settings.dead_letter_queue;
    if not found and dead_letter_queue <> v_queue.name then
      perform workq._no_queue(dead_letter_queue);
    elsif dead_letter_queue = v_queue.name or exists (
      with recursive chain (id) as (
        select v_dead_letter_queue
        union
        select k.dead_letter_queue from chain c join workq.queue k on k.id = c.id where k.dead_letter_queue is not null
      )
      select from chain where chain.id = v_queue.id)
    then
      perform workq._invalid('dead_letter_queue', dead_letter_queue, 'another queue, whose own dead letters do not come back to this one');
    end if;
    v_queue.dead_letter_queue := v_dead_letter_queue;
  end if;
  return v_queue;
end;
$$;
comment on function workq._settings is 'a queue with the settings replaced that are not null; 22023 out of range, WQ001 unknown dead letter queue, 0A000 not supported yet';

create or replace function workq._queue_info(q workq.queue)
returns workq.queue_info
language sql
stable
return row(
  q.name, q.created_at, q.visibility, q.visibility_factor, q.max_visibility, q.max_attempts, q.retry_delays,
  q.retry_jitter, q.ttl, q.retention, q.dead_retention,
  (select k.name from workq.queue k where k.id = q.dead_letter_queue),
  q.history, q.max_payload_bytes, q.max_depth, q.notify, q.paused)::workq.queue_info;
comment on function workq._queue_info is 'a queue as people see it';

create or replace function workq.queues(queue text default null)
returns setof workq.queue_info
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return query
    select i.* from workq.queue q cross join lateral workq._queue_info(q) i
    where queues.queue is null or q.name = queues.queue
    order by q.name;
  if not found and queue is not null then
    perform workq._no_queue(queue);
  end if;
end;
$$;
comment on function workq.queues is 'the queues and their settings, by name; or the one that is named. WQ001 unknown queue';

create or replace function workq.create_queue(
  queue text,
  visibility interval default null, visibility_factor double precision default null, max_visibility interval default null,
  max_attempts int default null, retry_delays interval[] default null, retry_jitter double precision default null,
  ttl interval default null, retention interval default null, dead_retention interval default null,
  dead_letter_queue text default null, history text default null, keyed text default null, key_limit int default null,
  clear_dead_on_ack boolean default null, max_in_flight int default null, rate_limit int default null,
  rate_period interval default null, lifo_after interval default null, max_payload_bytes int default null,
  max_depth bigint default null, dedupe_scope text default null, notify boolean default null, paused boolean default null)
returns workq.queue_info
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_have workq.queue;
  v_want workq.queue;
  v_new boolean := false;
  v_id int;
  v_sequence text;
  v_different text;
begin
  if queue is null or queue !~ '^[a-z][a-z0-9_.-]{0,46}$' then
    perform workq._invalid('queue', queue, '1 to 47 of a-z, 0-9, _ . and -, beginning with a letter');
  end if;

  lock table workq.queue in share row exclusive mode;
  select q.* into v_have from workq.queue q where q.name = create_queue.queue;
  if not found then
    v_new := true;
    v_id := nextval('workq.queue_id_seq')::int;
    foreach v_sequence in array array['floor', 'next_glance', 'next_look', 'sleepers', 'quiet', 'next_due_look', 'depth'] loop
      execute format('create sequence workq.%I', format('queue_%s_%s', v_id, v_sequence));
    end loop;
    insert into workq.queue (id, name, floor, next_glance, next_look, sleepers, quiet, next_due_look, depth)
    overriding system value
    values (
      v_id, queue,
      format('workq.queue_%s_floor', v_id)::regclass, format('workq.queue_%s_next_glance', v_id)::regclass,
      format('workq.queue_%s_next_look', v_id)::regclass,
      format('workq.queue_%s_sleepers', v_id)::regclass, format('workq.queue_%s_quiet', v_id)::regclass,
      format('workq.queue_%s_next_due_look', v_id)::regclass, format('workq.queue_%s_depth', v_id)::regclass)
    returning queue.* into v_have;
  end if;

  v_want := workq._settings(
    v_have, visibility, visibility_factor, max_visibility, max_attempts, retry_delays, retry_jitter, ttl, retention,
    dead_retention, dead_letter_queue, history, keyed, key_limit, clear_dead_on_ack, max_in_flight, rate_limit,
    rate_period, lifo_after, max_payload_bytes, max_depth, dedupe_scope, notify, paused);

  if v_new then
    perform workq._store(v_want);
  else
    v_want.paused := v_have.paused;
    select string_agg(w.key, ', ' order by w.key) into v_different
    from jsonb_each(to_jsonb(v_want)) w
    join jsonb_each(to_jsonb(v_have)) h on h.key = w.key
    where w.value <> h.value;
    if v_want is distinct from v_have then
      raise exception 'queue exists with other settings' using errcode = 'WQ008',
        detail = format('queue is %s, different: %s', workq._shown(queue), v_different),
        hint = 'workq.alter_queue(...) changes the settings of a queue';
    end if;
  end if;
  return workq._queue_info(v_want);
end;
$$;
comment on function workq.create_queue is 'creates a queue; null leaves a setting at its default. An existing queue is left as it is when the settings given (paused aside) are those it has, else WQ008. Defaults: visibility 30 s, visibility_factor 1, max_visibility 12 h, max_attempts 5, retry_delays {1 s, 10 s, 1 min, 10 min} (the nth failure waits the nth, the last repeats), retry_jitter 0.1, ttl 14 days, retention 7 days, dead_retention 90 days, dead_letter_queue none, history all, max_payload_bytes 1 MiB (1048576), max_depth none, notify true, paused false. 22023 out of range, WQ001 unknown dead letter queue, 0A000 a setting that is not supported yet';

create or replace function workq._store(q workq.queue)
returns void
language plpgsql
volatile
as $$
#variable_conflict use_column
begin
  update workq.queue k
  set visibility = q.visibility, visibility_factor = q.visibility_factor, max_visibility = q.max_visibility,
      max_attempts = q.max_attempts, retry_delays = q.retry_delays, retry_jitter = q.retry_jitter, ttl = q.ttl,
      retention = q.retention, dead_retention = q.dead_retention, dead_letter_queue = q.dead_letter_queue,
      history = q.history, max_payload_bytes = q.max_payload_bytes, max_depth = q.max_depth, notify = q.notify,
      paused = q.paused
  where k.id = q.id;
end;
$$;
comment on function workq._store is 'writes a queue with its settings';

create or replace function workq.alter_queue(
  queue text,
  visibility interval default null, visibility_factor double precision default null, max_visibility interval default null,
  max_attempts int default null, retry_delays interval[] default null, retry_jitter double precision default null,
  ttl interval default null, retention interval default null, dead_retention interval default null,
  dead_letter_queue text default null, history text default null, keyed text default null, key_limit int default null,
  clear_dead_on_ack boolean default null, max_in_flight int default null, rate_limit int default null,
  rate_period interval default null, lifo_after interval default null, max_payload_bytes int default null,
  max_depth bigint default null, dedupe_scope text default null, notify boolean default null, paused boolean default null,
  clear text[] default null)
returns workq.queue_info
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_have workq.queue;
  v_want workq.queue;
  v_clear text;
begin
  lock table workq.queue in share row exclusive mode;
  select q.* into v_have from workq.queue q where q.name = alter_queue.queue;
  if not found then
    perform workq._no_queue(queue);
  end if;
  v_want := workq._settings(
    v_have, visibility, visibility_factor, max_visibility, max_attempts, retry_delays, retry_jitter, ttl, retention,
    dead_retention, dead_letter_queue, history, keyed, key_limit, clear_dead_on_ack, max_in_flight, rate_limit,
    rate_period, lifo_after, max_payload_bytes, max_depth, dedupe_scope, notify, paused);

  foreach v_clear in array coalesce(clear, '{}') loop
    case v_clear
      when 'max_attempts' then v_want.max_attempts := null;
      when 'ttl' then v_want.ttl := null;
      when 'dead_letter_queue' then v_want.dead_letter_queue := null;
      when 'max_depth' then v_want.max_depth := null;
      else perform workq._invalid('clear', v_clear, 'max_attempts, ttl, dead_letter_queue or max_depth: the others have a value always');
    end case;
  end loop;

  perform workq._store(v_want);
  if v_have.paused and not v_want.paused then
    perform workq._wake(v_want, clock_timestamp());
  end if;
  return workq._queue_info(v_want);
end;
$$;
comment on function workq.alter_queue is 'changes the settings of a queue that are not null, and sets those named in clear to null (max_attempts: no limit, ttl: none, dead_letter_queue: keep dead letters here, max_depth: no limit). Messages that are enqueued already keep their ttl. WQ001 unknown queue, 22023 out of range, 0A000 a setting that is not supported yet';

create or replace function workq.pause_queue(queue text)
returns workq.queue_info
language sql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$ select workq.alter_queue(pause_queue.queue, paused => true) $$;
comment on function workq.pause_queue is 'stops handing out messages of a queue; enqueue and the settling of leases go on. WQ001 unknown queue';

create or replace function workq.resume_queue(queue text)
returns workq.queue_info
language sql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$ select workq.alter_queue(resume_queue.queue, paused => false) $$;
comment on function workq.resume_queue is 'hands out messages of a paused queue again and wakes its workers. WQ001 unknown queue';

-- workq.purge_queue: end everything unfinished.
-- Locks: the deliveries by id. What is enqueued while it runs stays.
create or replace function workq.purge_queue(queue text)
returns bigint
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_queue workq.queue;
  v_rows tid[];
  v_count bigint;
begin
  select q.* into v_queue from workq.queue q where q.name = purge_queue.queue;
  if not found then
    perform workq._no_queue(purge_queue.queue);
  end if;
  perform workq._enter(v_queue);
  v_rows := array(
    select d.row_id
    from (select d.message_id from workq.delivery d where d.queue_id = v_queue.id order by d.message_id) s
    cross join lateral (
      select d.ctid as row_id
      from workq.delivery d
      where d.message_id = s.message_id and d.queue_id + 0 = v_queue.id
      limit 1
      for update
    ) d);
  with purged as (
    delete from workq.delivery d using unnest(v_rows) r (row_id)
    where d.ctid = r.row_id
    returning d.*
  ), kept as (
    insert into workq.attempt (message_id, finished_at, started_at, lease, queue_id, attempt, outcome, worker)
    select p.message_id, v_now, p.received_at, p.lease, p.queue_id, p.attempt, 'purged', p.worker
    from purged p
    where p.attempt > 0 and v_queue.history <> 'none'
  )
  select count(*) into v_count from purged;
  return v_count;
end;
$$;
comment on function workq.purge_queue is 'removes all unfinished messages of a queue, leased ones too (their workers are told gone), and returns how many; dead letters stay. WQ001 unknown queue';

-- workq.drop_queue: remove a queue, its deliveries and dead letters.
-- Messages and history go with their partitions. Locks: the queue table, the queue's door, then its rows.
create or replace function workq.drop_queue(queue text, force boolean default false)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_queue workq.queue;
  v_referring text;
begin
  if force is null then
    perform workq._invalid('force', null, 'true or false');
  end if;
  -- An older snapshot would not see what was enqueued meanwhile, and throw it away.
  perform workq._need_read_committed('drop_queue');
  lock table workq.queue in share row exclusive mode;
  select q.* into v_queue from workq.queue q where q.name = drop_queue.queue;
  if not found then
    perform workq._no_queue(queue);
  end if;

  -- Waits for every open transaction that changed something in the queue (see _enter). The sequences
  -- themselves are left for maintain: who waits on one of them now must find it, and then no queue.
  execute format('alter sequence %s cache 1', v_queue.sleepers);

  select string_agg(q.name, ', ' order by q.name) into v_referring from workq.queue q where q.dead_letter_queue = v_queue.id;
  if not force and v_referring is not null then
    raise exception 'queue is the dead letter queue of others' using errcode = '2BP01',
      detail = format('queue is %s, named by %s', workq._shown(queue), v_referring),
      hint = 'name another one there with workq.alter_queue(...), or drop_queue(..., force => true): they keep their dead letters themselves then';
  end if;
  if not force and (
    exists (select from workq.delivery d where d.queue_id = v_queue.id)
    or exists (select from workq.dead_letter d where d.queue_id = v_queue.id))
  then
    raise exception 'queue is not empty' using errcode = 'WQ007',
      detail = format('queue is %s', workq._shown(queue)),
      hint = 'let it drain, or drop_queue(..., force => true) to throw away its messages and dead letters';
  end if;

  update workq.queue q set dead_letter_queue = null where q.dead_letter_queue = v_queue.id;
  perform workq.purge_queue(queue);
  delete from workq.dead_letter d where d.queue_id = v_queue.id;
  delete from workq.queue q where q.id = v_queue.id;
end;
$$;
comment on function workq.drop_queue is 'removes a queue. With unfinished messages or dead letters in it WQ007, and as the dead letter queue of others 2BP01, unless force is true: then they are thrown away. Waits for open transactions that use it. WQ001 unknown queue, 0A000 under REPEATABLE READ or SERIALIZABLE';
