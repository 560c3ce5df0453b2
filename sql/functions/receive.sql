-- Receiving.
--
-- The floor. While an old snapshot is held, the index entries of deliveries that were leased or
-- finished can be neither removed nor skipped, and every receive would walk over all of them. So the
-- queue remembers a floor below which receive need not look: the visible_at of the first row claimed,
-- and at least a second behind the clock. It is only a hint: transactions commit late, claims roll
-- back, clocks step. So somebody looks from the very beginning again once a second for the whole
-- queue, or less often when such a look takes long (see _rest), and lowers the floor to what it finds.
--
--   floor      may be raised by whoever walked from it, unless it was lowered meanwhile
--   next_look  is set before a look begins, so that one session looks, not all
--
-- A priority that was not walked contributes the first row it has; a look that fills its batch with
-- urgent messages would hide a late one of low priority otherwise.

create or replace function workq._floor(q workq.queue, now timestamptz)
returns timestamptz
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_floor bigint := pg_sequence_last_value(q.floor);
begin
  -- A floor above clock - 1 s was left by a clock that was stepped back.
  if v_floor <= workq._micros(now) - 1000000 then
    return workq._time(v_floor);
  end if;
  return timestamptz '-infinity';
end;
$$;
comment on function workq._floor is 'the time before which no delivery of the queue needs to be looked for, -infinity when there is none';

create or replace function workq._doom(attempt int, max_attempts int, expires_at timestamptz, now timestamptz)
returns text
language sql
immutable
return case
  when attempt >= max_attempts then 'attempts_exhausted'
  when expires_at <= now then 'expired'
end;
comment on function workq._doom is 'why a delivery that holds no valid lease is given up on: attempts_exhausted, expired, or null: it is not';

create or replace function workq._lease_length(visibility interval, factor double precision, attempt int, longest interval)
returns interval
language sql
immutable
-- Clamped before it is multiplied: 100 to the power of 100 is still a number.
return case
  when factor = 1 or attempt <= 1 then visibility
  else interval '1 second' * least(date_part('epoch', visibility) * factor ^ least(attempt - 1, 100), date_part('epoch', longest))
end;
comment on function workq._lease_length is 'how long the lease of the nth attempt lasts: visibility × factor^(n-1), up to the longest';

-- workq.receive: lease messages.
-- Locks: the deliveries, with SKIP LOCKED: it never waits for another worker.
create or replace function workq.receive(queue text, max_messages int default 1, visibility interval default null, worker text default null)
returns setof workq.received
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_queue workq.queue;
  v_visibility interval;
  v_factor double precision;
  v_lease bigint;
  v_sleepers bigint;
  v_look boolean;                          -- from the very beginning
  v_floor_seen bigint;
  v_from timestamptz;                      -- where the walk begins
  v_first timestamptz;                     -- the first row that the first walk met
  v_last_priority int;                     -- the last priority that the first walk met
  v_wanted int := max_messages;
  v_buried int := 0;
  v_rows tid[];
  v_doomed tid[];
  v_reasons text[];
  v_lapsed tid[];
  v_met_first timestamptz;
  v_met_priority int;
  v_count int;
begin
  select q.* into v_queue from workq.queue q where q.name = receive.queue;
  if not found then
    perform workq._no_queue(queue);
  end if;
  if (max_messages between 1 and 1000) is not true then
    perform workq._invalid('max_messages', max_messages::text, '1 to 1000');
  elsif visibility not between interval '1 millisecond' and v_queue.max_visibility then
    perform workq._invalid('visibility', visibility::text,
      format('1 millisecond to the queue''s max_visibility, which is %s', v_queue.max_visibility));
  elsif octet_length(worker) > 256 then
    perform workq._invalid('worker', worker, 'up to 256 bytes');
  end if;
  if v_queue.paused then
    return;
  end if;

  v_sleepers := pg_sequence_last_value(v_queue.sleepers);  -- and the door: see _enter
  v_look := workq._due(v_queue.next_look, v_now);
  v_floor_seen := pg_sequence_last_value(v_queue.floor);
  if v_look then
    perform setval(v_queue.next_look, workq._micros(v_now) + 1000000);
    v_from := '-infinity';
  else
    v_from := workq._floor(v_queue, v_now);
  end if;

  -- An explicit visibility is taken as it is; the factor belongs to the setting.
  v_visibility := coalesce(visibility, v_queue.visibility);
  v_factor := case when visibility is null then v_queue.visibility_factor else 1 end;
  -- A number that grows, and 16 random bits: handed out again after a crash, it does not match.
  v_lease := nextval('workq.lease_number') << 16 | floor(random() * 65536)::bigint;

  loop
    select
      array_agg(w.row_id) filter (where w.reason is null),
      array_agg(w.row_id) filter (where w.reason is null and w.lease is not null),
      array_agg(w.row_id) filter (where w.reason is not null),
      array_agg(w.reason) filter (where w.reason is not null),
      min(w.visible_at), max(w.priority)::int, count(*)::int
    into v_rows, v_lapsed, v_doomed, v_reasons, v_met_first, v_met_priority, v_count
    from (
      select
        d.ctid as row_id, d.lease, d.visible_at, d.priority,
        workq._doom(d.attempt, coalesce(d.max_attempts, v_queue.max_attempts), d.expires_at, v_now) as reason
      from generate_series(0, 10) p (priority)
      cross join lateral (
        select d.ctid, d.*
        from workq.delivery d
        where d.queue_id = v_queue.id and d.priority = p.priority and d.visible_at between v_from and v_now
        order by d.visible_at
        limit v_wanted
        for update skip locked
      ) d
      limit v_wanted
    ) w;
    if v_last_priority is null then
      v_first := v_met_first;
      v_last_priority := case when v_count < v_wanted then 10 else v_met_priority end;
      if v_look then
        perform workq._rest(v_queue.next_look, v_now, interval '1 second');
      end if;
    end if;
    exit when v_count = 0;

    if v_lapsed is not null and v_queue.history <> 'none' then
      insert into workq.attempt (message_id, finished_at, started_at, lease, queue_id, attempt, outcome, worker)
      select d.message_id, v_now, d.received_at, d.lease, d.queue_id, d.attempt, 'timeout', d.worker
      from workq.delivery d where d.ctid = any (v_lapsed);
    end if;

    -- By ctid: safe because the rows were locked without waiting, so this is their only live version.
    return query
      with leased as (
        update workq.delivery d
        set attempt = d.attempt + 1, lease = v_lease, received_at = v_now, worker = receive.worker, status = null,
            visible_at = v_now + workq._lease_length(v_visibility, v_factor, d.attempt + 1, v_queue.max_visibility)
        from unnest(v_rows) with ordinality r (row_id, ord)
        where d.ctid = r.row_id
        returning r.ord, d.message_id, d.created_at, d.attempt, d.max_attempts, d.visible_at, d.priority
      )
      select
        l.message_id, v_lease, l.attempt, coalesce(l.max_attempts, v_queue.max_attempts), l.visible_at, l.created_at,
        l.priority::int, null::text, m.kind, m.headers, m.payload, m.body, m.content_type
      from leased l
      -- Left and lateral: cannot be turned around, and no attempt is burnt unseen.
      left join lateral (
        select m.* from workq.message m where m.id = l.message_id and m.created_at = l.created_at limit 1
      ) m on true
      order by l.ord;

    v_wanted := v_wanted - coalesce(cardinality(v_rows), 0);

    exit when v_doomed is null;
    -- Where there is one there are more: a page at once, so that many of them do not cost a walk each.
    select array_agg(d.row_id), array_agg(d.reason)
    into v_doomed, v_reasons
    from generate_series(0, 10) p (priority)
    cross join lateral (
      select d.ctid as row_id
      from workq.delivery d
      where d.queue_id = v_queue.id and d.priority = p.priority and d.visible_at between v_from and v_now
      order by d.visible_at
      limit 1000
    ) s
    cross join lateral (
      select d.ctid as row_id, workq._doom(d.attempt, coalesce(d.max_attempts, v_queue.max_attempts), d.expires_at, v_now) as reason
      from workq.delivery d
      where d.ctid = s.row_id
        and workq._doom(d.attempt, coalesce(d.max_attempts, v_queue.max_attempts), d.expires_at, v_now) is not null
      limit 1
      for update skip locked
    ) d;
    perform workq._bury(v_queue, v_doomed, v_reasons);
    v_buried := v_buried + cardinality(v_doomed);
    exit when v_buried >= 1000;
  end loop;

  perform workq._move_floor(v_queue, v_now, v_floor_seen, v_from, v_first, v_last_priority);

  -- Woken, and with room for more: this caller looks again in 10 ms, so nobody need notify until then.
  if v_wanted between 1 and max_messages - 1
    and v_sleepers > workq._micros(v_now) and workq._due(v_queue.quiet, v_now)
  then
    perform setval(v_queue.quiet, workq._micros(v_now) + 10000);
  end if;
end;
$$;
comment on function workq.receive is 'leases up to max_messages (1 to 1000) messages, in the order in which they should be worked on: by priority, then the oldest first. visibility: how long until others may receive them again, 1 ms to max_visibility, default the setting of the queue (times visibility_factor for each attempt before); worker: a name for the history, up to 256 bytes. Name id and lease in ack, fail, extend, release and report. Exhausted and expired deliveries met on the way become dead letters. A paused queue returns nothing. WQ001 unknown queue, 22023 out of range';

create or replace function workq._move_floor(
  q workq.queue, now timestamptz, floor_seen bigint, walked_from timestamptz, first_met timestamptz, last_priority int)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_floor timestamptz := least(first_met, now - interval '1 second');
  v_unwalked timestamptz;
  v_new bigint := workq._micros(v_floor);
begin
  -- Not worth a write for less than 50 ms.
  if v_new between floor_seen and floor_seen + 50000 then
    return;
  end if;
  if last_priority < 10 then
    select min(d.visible_at) into v_unwalked
    from generate_series(last_priority + 1, 10) p (priority)
    cross join lateral (
      select d.visible_at
      from workq.delivery d
      where d.queue_id = q.id and d.priority = p.priority and d.visible_at >= walked_from
      order by d.visible_at
      limit 1
    ) d;
    v_new := workq._micros(least(v_floor, v_unwalked));
  end if;
  -- A microsecond less, for the rounding. Lowered by somebody's look since: leave it.
  if floor_seen is null or v_new < floor_seen
    or (v_new > floor_seen + 50000 and pg_sequence_last_value(q.floor) >= floor_seen)
  then
    perform setval(q.floor, v_new - 1);
  end if;
end;
$$;
comment on function workq._move_floor is 'sets the floor of a queue after a walk: to the first row met, a second behind the clock at the most';
