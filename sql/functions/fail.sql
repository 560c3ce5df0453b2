-- Failing: back to waiting with a delay, or dead.

create or replace function workq._fail(
  queue text, ids bigint[], leases bigint[], errors text[], retry_ins interval[], permanents boolean[], details jsonb[])
returns text[]
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_queue workq.queue;
  v_ords bigint[];
  v_reasons text[];
  v_visible timestamptz[];
  v_dead bigint[];
begin
  select q.* into v_queue from workq.queue q where q.name = _fail.queue;
  if not found then
    perform workq._no_queue(queue);
  elsif not (workq._is_batch(ids, leases, cardinality(errors)) and workq._is_batch(ids, leases, cardinality(retry_ins))
    and workq._is_batch(ids, leases, cardinality(permanents)) and workq._is_batch(ids, leases, cardinality(details)))
  then
    perform workq._bad_batch(ids, leases);
  elsif retry_ins is not null and exists (
    select from unnest(retry_ins) r where r not between interval '0' and interval '365 days')
  then
    perform workq._invalid('retry_in', retry_ins::text, '0 to 365 days');
  end if;

  -- Lock first and change in the next statement, which sees what a waited-for session left.
  select array_agg(l.ord), array_agg(l.reason), array_agg(v_now + l.delay), array_agg(l.ord) filter (where l.reason is not null)
  into v_ords, v_reasons, v_visible, v_dead
  from (
    select
      i.ord,
      case
        when i.permanent then 'permanent'
        when d.attempt >= coalesce(d.max_attempts, v_queue.max_attempts) then 'attempts_exhausted'
        when d.expires_at <= v_now then 'expired'
      end as reason,
      coalesce(i.retry_in,
        v_queue.retry_delays[least(d.attempt, cardinality(v_queue.retry_delays))]
          * (1 + v_queue.retry_jitter * (2 * random() - 1))) as delay
    from unnest(ids, leases, retry_ins, permanents) with ordinality i (id, lease, retry_in, permanent, ord)
    join workq.delivery d on d.queue_id = v_queue.id and d.message_id = i.id and d.lease = i.lease
    order by i.id
    for update of d
  ) l;

  if cardinality(v_ords) > coalesce(cardinality(v_dead), 0) then
    with retried as (
      update workq.delivery d
      set lease = null, visible_at = r.visible_at
      from unnest(v_ords, v_reasons, v_visible) r (ord, reason, visible_at)
      where r.reason is null and d.queue_id = v_queue.id and d.message_id = ids[r.ord]
      returning d.message_id, d.received_at, d.attempt, d.worker, r.ord
    )
    insert into workq.attempt (message_id, finished_at, started_at, lease, queue_id, attempt, outcome, worker, error, details)
    select t.message_id, v_now, t.received_at, leases[t.ord], v_queue.id, t.attempt, 'retry', t.worker,
      workq._cut(errors[t.ord]), workq._cut_json(_fail.details[t.ord])
    from retried t
    where v_queue.history <> 'none';
    perform workq._wake(v_queue, (select min(v.at) from unnest(v_visible, v_reasons) v (at, reason) where v.reason is null));
  end if;

  if v_dead is not null then
    perform workq._bury(v_queue,
      array(select ids[d.ord] from unnest(v_dead) with ordinality d (ord, n) order by d.n),
      array(select r.reason from unnest(v_reasons) with ordinality r (reason, n) where r.reason is not null order by r.n),
      array(select errors[d.ord] from unnest(v_dead) with ordinality d (ord, n) order by d.n),
      array(select _fail.details[d.ord] from unnest(v_dead) with ordinality d (ord, n) order by d.n));
  end if;

  return array(
    select case
      when o.outcome <> 'retry' then o.outcome
      when v_reasons[array_position(v_ords, o.ord)] is null then 'retry'
      else 'dead'
    end
    from unnest(workq._outcomes(v_queue, ids, v_ords, 'retry')) with ordinality o (outcome, ord)
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
  return (workq._fail(queue, array[id], array[lease], array[error], array[retry_in], array[permanent], array[details]))[1];
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
