-- Releasing: give a message back unworked, and the attempt with it.

create or replace function workq._release(queue text, ids bigint[], leases bigint[], delays interval[])
returns text[]
language plpgsql
volatile
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_queue workq.queue;
  v_done bigint[];
  v_visible timestamptz;
begin
  select q.* into v_queue from workq.queue q where q.name = _release.queue;
  if not found then
    perform workq._no_queue(queue);
  elsif not workq._is_batch(ids, leases, delays is null or array_dims(delays) is not distinct from array_dims(ids)) then
    perform workq._bad_batch(ids, leases);
  elsif exists (select from unnest(delays) d where d not between interval '0' and interval '365 days') then
    perform workq._invalid('delay', delays::text, '0 to 365 days');
  end if;

  perform workq._enter(v_queue);
  with released as (
    update workq.delivery d
    set lease = null, attempt = greatest(d.attempt - 1, 0), visible_at = v_now + coalesce(i.delay, interval '0')
    from (select * from unnest(ids, leases, delays) with ordinality i (id, lease, delay, ord) order by i.id) i
    where d.message_id = any (array[i.id]) and d.queue_id + 0 = v_queue.id and d.lease = i.lease
    returning i.ord, i.lease, d.message_id, d.received_at, d.attempt + 1 as attempt, d.worker, d.visible_at
  ), kept as (
    insert into workq.attempt (message_id, finished_at, started_at, lease, queue_id, attempt, outcome, worker)
    select r.message_id, v_now, r.received_at, r.lease, v_queue.id, r.attempt, 'released', r.worker
    from released r
    where v_queue.history = 'all'
  )
  select array_agg(r.ord), min(r.visible_at) into v_done, v_visible from released r;
  if v_visible is not null then
    perform workq._wake(v_queue, v_visible);
  end if;
  return workq._outcomes(queue, ids, v_done, 'released');
end;
$$;
comment on function workq._release is 'gives deliveries back; an outcome for each';

create or replace function workq.release(queue text, id bigint, lease bigint, delay interval default '0')
returns text
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return (workq._release(queue, array[id], array[lease], array[delay]))[1];
end;
$$;
comment on function workq.release is 'gives a message back unworked: it is receivable after delay (0 to 365 days) and the attempt does not count. Returns released; stale: it was received again; gone: it is finished already. WQ001 unknown queue, 22023 null id or lease, or out of range';

create or replace function workq.release_many(queue text, ids bigint[], leases bigint[], delays interval[] default null)
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
    from unnest(ids, workq._release(queue, ids, leases, delays)) with ordinality s (id, outcome, ord);
end;
$$;
comment on function workq.release_many is 'gives many messages back unworked, and says of each released, stale or gone, in the order given; arguments as in release. Locks in the order of ids. WQ001 unknown queue, 22023 arrays of different lengths, nulls in ids or leases, or out of range';
