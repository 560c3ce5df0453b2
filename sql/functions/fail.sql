-- Failing: back to waiting with a delay, or dead.

create or replace function workq._fail(
  queue text, ids bigint[], leases bigint[], errors text[], retry_ins interval[], permanents boolean[], details jsonb[])
returns text[]
language plpgsql
volatile
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_queue workq.queue;
  v_ords bigint[];
  v_rows tid[];
  v_reasons text[];
  v_visible timestamptz[];
  v_first timestamptz;
begin
  select q.* into v_queue from workq.queue q where q.name = _fail.queue;
  if not found then
    perform workq._no_queue(queue);
  elsif not workq._is_batch(ids, leases,
    (errors is null or array_dims(errors) is not distinct from array_dims(ids))
      and (retry_ins is null or array_dims(retry_ins) is not distinct from array_dims(ids))
      and (permanents is null or array_dims(permanents) is not distinct from array_dims(ids))
      and (_fail.details is null or array_dims(_fail.details) is not distinct from array_dims(ids)))
  then
    perform workq._bad_batch(ids, leases);
  elsif retry_ins is not null and exists (
    select from unnest(retry_ins) r where r not between interval '0' and interval '365 days')
  then
    perform workq._invalid('retry_in', retry_ins::text, '0 to 365 days');
  end if;

  perform workq._enter(v_queue);
  -- Lock first and change by ctid in the next statements: they see what a waited-for session left.
  select array_agg(l.ord), array_agg(l.row_id), array_agg(l.reason), array_agg(l.visible_at)
  into v_ords, v_rows, v_reasons, v_visible
  from (
    select
      i.ord, d.row_id,
      case when i.permanent then 'permanent' else d.doom end as reason,
      v_now + coalesce(i.retry_in, d.delay) as visible_at
    from (
      select * from unnest(ids, leases, retry_ins, permanents) with ordinality i (id, lease, retry_in, permanent, ord) order by i.id
    ) i
    cross join lateral (
      select
        d.ctid as row_id,
        workq._doom(d.attempt, coalesce(d.max_attempts, v_queue.max_attempts), d.expires_at, v_now) as doom,
        v_queue.retry_delays[least(d.attempt, cardinality(v_queue.retry_delays))]
          * (1 + v_queue.retry_jitter * (2 * random() - 1)) as delay
      from workq.delivery d
      where d.message_id = i.id and d.queue_id + 0 = v_queue.id and d.lease = i.lease
        -- A pair that is named twice fails as it does the first time.
        and not exists (
          select from unnest(ids, leases) with ordinality f (id, lease, ord)
          where f.id = i.id and f.lease = i.lease and f.ord < i.ord)
      limit 1
      for update of d
    ) d
  ) l;

  with retried as (
    update workq.delivery d
    set lease = null, visible_at = r.visible_at
    from unnest(v_ords, v_rows, v_reasons, v_visible) r (ord, row_id, reason, visible_at)
    where d.ctid = r.row_id and r.reason is null
    returning d.message_id, d.received_at, d.attempt, d.worker, d.visible_at, r.ord
  ), kept as (
    insert into workq.attempt (message_id, finished_at, started_at, lease, queue_id, attempt, outcome, worker, error, details)
    select t.message_id, v_now, t.received_at, leases[t.ord], v_queue.id, t.attempt, 'retry', t.worker,
      workq._cut(errors[t.ord]), workq._cut_json(_fail.details[t.ord])
    from retried t
    where v_queue.history <> 'none'
  )
  select min(t.visible_at) into v_first from retried t;
  if v_first is not null then
    perform workq._wake(v_queue, v_first);
  end if;

  if array_remove(v_reasons, null) <> '{}' then
    perform workq._bury(v_queue, array_agg(d.row_id), array_agg(d.reason), array_agg(errors[d.ord]), array_agg(_fail.details[d.ord]))
    from unnest(v_ords, v_rows, v_reasons) d (ord, row_id, reason)
    where d.reason is not null;
  end if;

  return array(
    select case
      when o.outcome <> 'retry' then o.outcome
      when v_reasons[array_position(v_ords, o.ord)] is null then 'retry'
      else 'dead'
    end
    from unnest(workq._outcomes(queue, ids, v_ords, 'retry')) with ordinality o (outcome, ord)
    order by o.ord);
end;
$$;
comment on function workq._fail is 'sends deliveries back to wait, or to the dead letters; an outcome for each';

create or replace function workq.fail(
  queue text, id bigint, lease bigint, error text default null, retry_in interval default null,
  permanent boolean default false, details jsonb default null)
returns text
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if permanent is null then
    perform workq._invalid('permanent', null, 'true or false');
  end if;
  return (workq._fail(queue, array[id], array[lease], array[error], array[retry_in], array[permanent], array[fail.details]))[1];
end;
$$;
comment on function workq.fail is 'says that an attempt failed. Returns retry: it waits for retry_in (0 to 365 days), default the retry_delays of the queue with their jitter; dead: it was permanent, the last attempt, or past its ttl, and is a dead letter now; stale: it was received again; gone: it is finished already. error and details (JSON) are kept up to 64 KiB each, then cut with a mark. WQ001 unknown queue, 22023 null id or lease, or out of range';

create or replace function workq.fail_many(
  queue text, ids bigint[], leases bigint[], errors text[] default null, retry_ins interval[] default null,
  permanents boolean[] default null, details jsonb[] default null)
returns setof workq.settled
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return query
    select s.ord::int, s.id, s.outcome
    from unnest(ids, workq._fail(queue, ids, leases, errors, retry_ins, permanents, fail_many.details)) with ordinality s (id, outcome, ord);
end;
$$;
comment on function workq.fail_many is 'says that many attempts failed, and of each retry, dead, stale or gone, in the order given; arguments as in fail. Locks in the order of ids. WQ001 unknown queue, 22023 arrays of different lengths or nulls in ids or leases';
