-- Settling, and what all settling verbs share.
--
-- A delivery is settled by whoever names its lease. Each verb finds its rows by key and lease, in the
-- order of their ids, so that two batches never deadlock; a row that another session is changing is
-- waited for, and then its lease is looked at again.
-- Outcomes: the word of the verb, else `stale` (it was received again, or given back) or `gone`
-- (finished, dead-lettered, cancelled, or never there). A pair of id and lease that is named twice is
-- settled once.
--
-- `d.message_id = any (array[i.id]) and d.queue_id + 0 = …` is the key, written so that the primary key
-- is the only way to a row and the join cannot be turned around. The planner that finds the table empty
-- may otherwise walk the whole queue for each call, and the session keeps that plan.

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
  perform workq._invalid('ids', array_dims(ids), 'ids, leases and the other arrays: those given are of one length, and of one dimension that begins at 1');
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

create or replace function workq._outcomes(queue text, ids bigint[], done bigint[], word text)
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
      when exists (
        select from workq.delivery d
        where d.message_id = i.id and d.queue_id + 0 = (select q.id from workq.queue q where q.name = _outcomes.queue)
      ) then 'stale'
      else 'gone'
    end
    from unnest(ids) with ordinality i (id, ord)
    order by i.ord);
end;
$$;
comment on function workq._outcomes is 'an outcome for each id: the word for those whose positions are done, stale or gone for the others';

-- workq._ack: the positions of those that were acked.
create or replace function workq._ack(queue text, ids bigint[], leases bigint[], results jsonb[])
returns bigint[]
language plpgsql
volatile
as $$
-- @plpgsql_check_options: extra_warnings = off
#variable_conflict use_column
declare
  v_now timestamptz;
  v_queue_id int;
  v_history text;
  v_door bigint;
  v_fits boolean;
  v_done bigint[];
begin
  select clock_timestamp(), q.id, q.history, pg_sequence_last_value(q.sleepers),  -- see _enter
    workq._is_batch(ids, leases, results is null or array_dims(results) is not distinct from array_dims(ids))
  into v_now, v_queue_id, v_history, v_door, v_fits
  from workq.queue q
  where q.name = _ack.queue;
  if v_fits is not true then
    if v_queue_id is null then
      perform workq._no_queue(queue);
    end if;
    perform workq._bad_batch(ids, leases);
  end if;

  with acked as (
    delete from workq.delivery d
    using (select * from unnest(ids, leases) with ordinality i (id, lease, ord) order by i.id) i
    where d.message_id = any (array[i.id]) and d.queue_id + 0 = v_queue_id and d.lease = i.lease
    returning i.ord, d.message_id, d.received_at, d.lease, d.attempt, d.worker
  ), kept as (
    insert into workq.attempt (message_id, finished_at, started_at, lease, queue_id, attempt, outcome, worker, result)
    select a.message_id, v_now, a.received_at, a.lease, v_queue_id, a.attempt, 'acked', a.worker, workq._cut_json(results[a.ord])
    from acked a
    where v_history = 'all'
  )
  select array_agg(a.ord) into v_done from acked a;
  return v_done;
end;
$$;
comment on function workq._ack is 'finishes deliveries; the positions of those whose lease held, null: none';

-- One statement and one row, as acks one by one are what many workers do all day; ack_many does the same for a set.
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
  with acked as (
    delete from workq.delivery d
    using (
      select q.id, q.history, pg_sequence_last_value(q.sleepers) as door  -- see _enter
      from workq.queue q
      where q.name = ack.queue
      offset 0
    ) q
    where d.message_id = ack.id and d.queue_id + 0 = q.id and d.lease = ack.lease
    returning d.message_id, d.received_at, d.lease, d.queue_id, d.attempt, d.worker, q.history
  ), kept as (
    insert into workq.attempt (message_id, finished_at, started_at, lease, queue_id, attempt, outcome, worker, result)
    select a.message_id, clock_timestamp(), a.received_at, a.lease, a.queue_id, a.attempt, 'acked', a.worker, workq._cut_json(ack.result)
    from acked a
    where a.history = 'all'
  )
  select 'acked' into v_outcome from acked a;
  if v_outcome is not null and strict is not null then
    return v_outcome;
  end if;

  if strict is null then
    perform workq._invalid('strict', null, 'true or false');
  end if;
  v_outcome := (workq._outcomes(queue, array[id], workq._ack(queue, array[id], array[lease], array[result]), 'acked'))[1];
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
    from unnest(ids, workq._outcomes(queue, ids, workq._ack(queue, ids, leases, results), 'acked')) with ordinality s (id, outcome, ord);
end;
$$;
comment on function workq.ack_many is 'finishes many messages, each with its lease, and says of each acked, stale or gone, in the order given. Locks in the order of ids. WQ001 unknown queue, 22023 arrays of different lengths or nulls in ids or leases';
