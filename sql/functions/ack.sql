-- Settling, and what all settling verbs share.
--
-- A delivery is settled by whoever names its lease. Each verb locks its rows first; one that another
-- session is changing is waited for, and then its lease is looked at again.
-- Outcomes: the word of the verb, else `stale` (it was received again, or given back) or `gone`
-- (finished, dead-lettered, cancelled, or never there). A pair of id and lease that is named twice is
-- settled once and told the same twice.

create or replace function workq._bad_batch(ids bigint[], leases bigint[])
returns void
language plpgsql
volatile
as $$
#variable_conflict use_column
begin
  if ids is null or exists (select from unnest(ids) i where i is null) then
    perform workq._invalid('id', null, 'the id of a message, from receive or a receipt');
  elsif leases is null or exists (select from unnest(leases) l where l is null) then
    perform workq._invalid('lease', null, 'the lease that receive returned with the message');
  end if;
  perform workq._invalid('arrays', null, 'ids, leases and the other arrays: those given are of one length, and of one dimension that begins at 1');
end;
$$;
comment on function workq._bad_batch is 'raises 22023 for ids and leases that do not fit together or are null';

create or replace function workq._is_batch(ids bigint[], leases bigint[], others boolean default true)
returns boolean
language sql
immutable
return case
  when ids is null or leases is null or not others or array_dims(ids) is distinct from array_dims(leases)
    or array_ndims(ids) > 1 or array_lower(ids, 1) <> 1
    then false
  else array_position(ids, null) is null and array_position(leases, null) is null
end;
comment on function workq._is_batch is 'whether ids and leases are without nulls, of one length and of one dimension that begins at 1; others: whether other arrays fit to them';

-- workq._lock: the deliveries that still carry their leases.
-- Locks them in the order of their ids, so that two batches never deadlock. Lateral, so that the join
-- cannot be turned around: planned on an empty table it would walk the whole queue for ever after.
-- The caller changes them in its next statement, by ctid alone: a row that had to be waited for has
-- a new one, which only a later snapshot sees.
create or replace function workq._lock(q workq.queue, ids bigint[], leases bigint[], ords out bigint[], rows out tid[])
language plpgsql
volatile
as $$
#variable_conflict use_column
begin
  perform pg_sequence_last_value(q.sleepers);  -- the door: see _enter
  select array_agg(d.ord), array_agg(d.row_id)
  into ords, rows
  from (
    select i.ord, d.row_id
    from (select * from unnest(ids, leases) with ordinality i (id, lease, ord) order by i.id) i
    cross join lateral (
      select d.ctid as row_id
      from workq.delivery d
      where d.queue_id = q.id and d.message_id = i.id and d.lease = i.lease
      limit 1
      for update
    ) d
  ) d;
end;
$$;
comment on function workq._lock is 'locks the deliveries that still carry the leases named; their positions among the ids, and their rows';

create or replace function workq._outcomes(queue_id int, ids bigint[], done bigint[], word text)
returns text[]
language plpgsql
volatile
as $$
#variable_conflict use_column
begin
  if cardinality(done) = cardinality(ids) then
    return array_fill(word, array[cardinality(ids)]);
  end if;
  return array(
    select case
      when i.ord = any (done) then word
      when exists (select from workq.delivery d where d.queue_id = _outcomes.queue_id and d.message_id = i.id) then 'stale'
      else 'gone'
    end
    from unnest(ids) with ordinality i (id, ord)
    order by i.ord);
end;
$$;
comment on function workq._outcomes is 'an outcome for each id: the word for those whose positions are done, stale or gone for the others';

-- One statement a call, as acks are what a queue does most. A row that had to be waited for is locked
-- but not yet seen by the statement that waited: the next round sees it.
create or replace function workq._ack(queue text, ids bigint[], leases bigint[], results jsonb[])
returns text[]
language plpgsql
volatile
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_queue_id int;
  v_done bigint[];
  v_ords bigint[];
  v_locked int;
begin
  if not workq._is_batch(ids, leases, results is null or array_dims(results) is not distinct from array_dims(ids)) then
    perform workq._bad_batch(ids, leases);
  end if;
  loop
    with queue as materialized (
      select q.id, q.history, pg_sequence_last_value(q.sleepers) as door  -- see _enter
      from workq.queue q
      where q.name = _ack.queue
    ), locked as materialized (
      select l.*
      from queue q
      cross join (select * from unnest(ids, leases) with ordinality i (id, lease, ord) order by i.id) i
      cross join lateral (
        select d.ctid as row_id, i.ord
        from workq.delivery d
        where d.queue_id = q.id and d.message_id = i.id and d.lease = i.lease
        limit 1
        for update
      ) l
    ), acked as (
      delete from workq.delivery d
      using locked l
      where d.ctid = l.row_id
      returning l.ord, d.message_id, d.received_at, d.lease, d.queue_id, d.attempt, d.worker
    ), kept as (
      insert into workq.attempt (message_id, finished_at, started_at, lease, queue_id, attempt, outcome, worker, result)
      select a.message_id, v_now, a.received_at, a.lease, a.queue_id, a.attempt, 'acked', a.worker, workq._cut_json(results[a.ord])
      from acked a
      where (select q.history from queue q) = 'all'
    )
    select (select q.id from queue q), (select array_agg(a.ord) from acked a), count(distinct l.row_id)::int
    into v_queue_id, v_ords, v_locked
    from locked l;
    v_done := v_done || v_ords;
    exit when v_locked = coalesce(cardinality(v_ords), 0);
  end loop;

  if cardinality(v_done) = cardinality(ids) then
    return array_fill('acked'::text, array[cardinality(ids)]);
  elsif v_queue_id is null then
    perform workq._no_queue(queue);
  end if;
  return workq._outcomes(v_queue_id, ids, v_done, 'acked');
end;
$$;
comment on function workq._ack is 'finishes deliveries; an outcome for each';

create or replace function workq.ack(queue text, id bigint, lease bigint, result jsonb default null, strict boolean default false)
returns text
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_outcome text;
begin
  if strict is null then
    perform workq._invalid('strict', null, 'true or false');
  end if;
  v_outcome := (workq._ack(queue, array[id], array[lease], array[result]))[1];
  if strict and v_outcome <> 'acked' then
    raise exception 'lease is lost' using errcode = 'WQ002',
      detail = format('queue is %L, message %s, lease %s: %s', queue, id, lease, v_outcome),
      hint = 'somebody else has the message or has finished it: roll back what was done for it';
  end if;
  return v_outcome;
end;
$$;
comment on function workq.ack is 'finishes a message. result: kept in the history up to 64 KiB, then cut with a mark. Returns acked; stale: it was received again; gone: it is finished already. strict: raises WQ002 instead, so that the work of the same transaction rolls back. WQ001 unknown queue, 22023 null id or lease';

create or replace function workq.ack_many(queue text, ids bigint[], leases bigint[], results jsonb[] default null)
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
    from unnest(ids, workq._ack(queue, ids, leases, results)) with ordinality s (id, outcome, ord);
end;
$$;
comment on function workq.ack_many is 'finishes many messages, each with its lease, and says of each acked, stale or gone, in the order given. Locks in the order of ids. WQ001 unknown queue, 22023 arrays of different lengths or nulls in ids or leases';
