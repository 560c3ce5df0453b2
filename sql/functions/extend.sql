-- Extending: push a lease's deadline out.

create or replace function workq._extend(queue text, ids bigint[], leases bigint[], visibilities interval[], until out timestamptz, outcomes out text[])
language plpgsql
volatile
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_queue workq.queue;
  v_done bigint[];
begin
  select q.* into v_queue from workq.queue q where q.name = _extend.queue;
  if not found then
    perform workq._no_queue(queue);
  elsif not workq._is_batch(ids, leases, visibilities is null or array_dims(visibilities) is not distinct from array_dims(ids)) then
    perform workq._bad_batch(ids, leases);
  elsif exists (select from unnest(visibilities) v where v not between interval '1 millisecond' and v_queue.max_visibility) then
    perform workq._invalid('visibility', visibilities::text,
      format('1 millisecond to the queue''s max_visibility, which is %s', v_queue.max_visibility));
  end if;

  perform workq._enter(v_queue);
  with extended as (
    update workq.delivery d
    set visible_at = v_now + coalesce(i.visibility,
      workq._lease_length(v_queue.visibility, v_queue.visibility_factor, d.attempt, v_queue.max_visibility))
    from (select * from unnest(ids, leases, visibilities) with ordinality i (id, lease, visibility, ord) order by i.id) i
    where d.message_id = any (array[i.id]) and d.queue_id + 0 = v_queue.id and d.lease = i.lease
    returning i.id, i.lease, d.visible_at
  )
  select max(e.visible_at), array_agg(i.ord)
  into until, v_done
  from extended e
  cross join lateral (
    -- A pair that was named twice is extended once, and told so twice.
    select i.ord from unnest(ids, leases) with ordinality i (id, lease, ord) where i.id = e.id and i.lease = e.lease
  ) i;
  outcomes := workq._outcomes(queue, ids, v_done, 'extended');
end;
$$;
comment on function workq._extend is 'moves the deadlines of leases; an outcome for each, and the last of the new deadlines';

create or replace function workq.extend(queue text, id bigint, lease bigint, visibility interval default null)
returns timestamptz
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return (workq._extend(queue, array[id], array[lease], array[visibility])).until;
end;
$$;
comment on function workq.extend is 'sets the deadline of a lease to visibility from now (1 ms to max_visibility, default the setting of the queue) and returns it; null when the lease is lost. Works after the deadline too, as long as nobody received the message since. WQ001 unknown queue, 22023 null id or lease, or out of range';

create or replace function workq.extend_many(queue text, ids bigint[], leases bigint[], visibilities interval[] default null)
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
    from workq._extend(queue, ids, leases, visibilities) e
    cross join unnest(ids, e.outcomes) with ordinality s (id, outcome, ord);
end;
$$;
comment on function workq.extend_many is 'sets the deadlines of many leases, and says of each extended, stale or gone, in the order given; arguments as in extend. Locks in the order of ids. WQ001 unknown queue, 22023 arrays of different lengths, nulls in ids or leases, or out of range';
