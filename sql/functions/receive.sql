-- Receiving.
--
-- The floor. While an old snapshot is held, the index entries of deliveries that were leased or
-- finished can be neither removed nor skipped, and every receive would walk over all of them. So the
-- queue remembers a floor below which receive need not look: the visible_at of the first row that is
-- left, and at least 50 ms behind the clock. It is only a hint: transactions commit late, claims roll
-- back, clocks step. So somebody looks below it again and again, one session for the whole queue:
--
--   glance  a second back, every 50 ms: finds commits that were a little late
--   look    from the very beginning, once a second, or less often when it takes long (see _rest): finds all
--
-- and sets the floor to what is left there. Whoever glances or looks sets the time of the next one
-- before, so that the others do not do the same. The floor is the first row that is left of all
-- priorities: a look that fills its batch with urgent messages does not hide a late one of low priority.

create or replace function workq._floor(floor bigint, now timestamptz)
returns timestamptz
language sql
stable
-- A floor above the clock was left by a clock that was stepped back.
return case
  when floor <= workq._micros(now) then workq._time(floor)
  else timestamptz '-infinity'
end;
comment on function workq._floor is 'the time before which no delivery of the queue needs to be looked for, by the value of its sequence; -infinity when there is none';

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
language plpgsql
immutable
as $$
#variable_conflict use_column
begin
  if factor = 1 or attempt <= 1 then
    return visibility;
  end if;
  -- Clamped before it is multiplied: 100 to the power of 100 is still a number.
  return interval '1 second' * least(date_part('epoch', visibility) * factor ^ least(attempt - 1, 100), date_part('epoch', longest));
end;
$$;
comment on function workq._lease_length is 'how long the lease of the nth attempt lasts: visibility × factor^(n-1), up to the longest';

-- workq.receive: lease messages.
-- Locks: the deliveries, with SKIP LOCKED: it does not wait for another worker. (But for a row that was
-- changed twice within microseconds, where PostgreSQL itself waits for the second change: in a long
-- transaction that holds other rows, 40P01 is conceivable. Try again then.)
create or replace function workq.receive(queue text, max_messages int default 1, visibility interval default null, worker text default null)
returns setof workq.received
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz;
  v_queue_id int;
  v_visibility interval;
  v_factor double precision;
  v_max_visibility interval;
  v_max_attempts int;
  v_sleepers bigint;
  v_floor bigint;
  v_from timestamptz;     -- where the walk begins
  v_lease bigint;
  v_simple boolean;       -- nothing is wrong, and this is not the time for a look or a glance
  v_count int;
  v_prepared tid[];
begin
  -- As much as can be in one statement: PL/pgSQL sets every expression of its own up anew in each transaction.
  select
    q.now, q.id,
    -- An explicit visibility is taken as it is; the factor belongs to the setting.
    coalesce(receive.visibility, q.visibility), case when receive.visibility is null then q.visibility_factor else 1 end,
    q.max_visibility, q.max_attempts, q.sleep_until, q.floor_micros, workq._floor(q.floor_micros, q.now),
    -- A number that grows, and 16 random bits: handed out again after a crash, it does not match.
    nextval('workq.lease_number') << 16 | floor(random() * 65536)::bigint,
    not q.paused and max_messages between 1 and 1000
      and (receive.visibility is null or receive.visibility between interval '1 millisecond' and q.max_visibility)
      and (worker is null or octet_length(worker) <= 256)
      and not workq._due(q.next_glance, q.now)
  into
    v_now, v_queue_id, v_visibility, v_factor, v_max_visibility, v_max_attempts, v_sleepers, v_floor, v_from,
    v_lease, v_simple
  from (
    select
      q.id, q.paused, q.visibility, q.visibility_factor, q.max_visibility, q.max_attempts,
      clock_timestamp() as now, pg_sequence_last_value(q.floor) as floor_micros,
      pg_sequence_last_value(q.next_glance) as next_glance,
      pg_sequence_last_value(q.sleepers) as sleep_until  -- and the door: see _enter
    from workq.queue q
    where q.name = receive.queue
    offset 0
  ) q;

  if v_simple is not true then
    if v_queue_id is null then
      perform workq._no_queue(queue);
    elsif (max_messages between 1 and 1000) is not true then
      perform workq._invalid('max_messages', max_messages::text, '1 to 1000');
    elsif visibility not between interval '1 millisecond' and v_max_visibility then
      perform workq._invalid('visibility', visibility::text,
        format('1 millisecond to the queue''s max_visibility, which is %s', v_max_visibility));
    elsif octet_length(worker) > 256 then
      perform workq._invalid('worker', worker, 'up to 256 bytes');
    end if;
    perform setval(q.next_glance, workq._micros(v_now) + 50000) from workq.queue q where q.id = v_queue_id and not q.paused;
    if not found then
      return;  -- it is paused
    end if;
    perform setval(q.next_look, workq._micros(v_now) + 1000000)
    from workq.queue q
    where q.id = v_queue_id and workq._due(pg_sequence_last_value(q.next_look), v_now);
    v_from := case when found then timestamptz '-infinity' else least(v_from, v_now - interval '1 second') end;
  end if;

  loop
    return query
      with picked as materialized (
        select d.*
        from (values (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10)) p (priority)
        cross join lateral (
          select
            d.ctid as row_id,
            -- A lease that ran out, or a delivery that is doomed: see _prepare.
            (d.lease is not null or d.attempt >= coalesce(d.max_attempts, v_max_attempts) or d.expires_at <= v_now) as special
          from workq.delivery d
          where d.queue_id = v_queue_id and d.priority = p.priority and d.visible_at between v_from and v_now
            and (v_prepared is null or d.ctid = any (v_prepared))
          order by d.visible_at
          limit max_messages
          for update skip locked
        ) d
        limit max_messages
      ), leased as (
        -- By ctid: safe because the rows were locked without waiting, so this is their only live version.
        update workq.delivery d
        set attempt = d.attempt + 1, lease = v_lease, received_at = v_now, worker = receive.worker, status = null,
            visible_at = v_now + case
              when v_factor = 1 then v_visibility
              else workq._lease_length(v_visibility, v_factor, d.attempt + 1, v_max_visibility)
            end
        from picked p
        where d.ctid = p.row_id
          and (v_prepared is not null or not exists (select from picked s where s.special))
        returning d.message_id, d.created_at, d.attempt, d.max_attempts, d.visible_at, d.priority
      )
      -- In the order of the walk: nothing in this plan sorts.
      select
        l.message_id, v_lease, l.attempt, coalesce(l.max_attempts, v_max_attempts), l.visible_at, l.created_at,
        l.priority::int, null::text, m.kind, m.headers, m.payload, m.body, m.content_type
      from leased l
      -- Left and lateral: cannot be turned around, and no attempt is burnt unseen.
      left join lateral (
        select m.* from workq.message m where m.id = l.message_id and m.created_at = l.created_at limit 1
      ) m on true;
    get diagnostics v_count = row_count;
    -- Nothing: that is the end, or there is something to clear away first, which keeps the first round from
    -- leasing anything.
    exit when v_count > 0 or v_prepared is not null;
    v_prepared := workq._prepare(v_queue_id, max_messages, v_from, v_now);
    exit when v_prepared is null;
  end loop;

  -- After every look and glance, and once in so many messages: those leave dead entries behind.
  if not v_simple or (v_lease >> 16) % greatest(256 / max_messages, 1) = 0 then
    perform workq._move_floor(v_queue_id, v_now, v_floor, v_from);
  end if;
  -- Woken, and with room for more: this caller looks again in 10 ms, so nobody need notify until then.
  if v_count between 1 and max_messages - 1 and v_sleepers > workq._micros(v_now) then
    perform setval(q.quiet, workq._micros(v_now) + 10000)
    from workq.queue q
    where q.id = v_queue_id and workq._due(pg_sequence_last_value(q.quiet), v_now);
  end if;
end;
$$;
comment on function workq.receive is 'leases up to max_messages (1 to 1000) messages, in the order in which they should be worked on: by priority, then the oldest first. visibility: how long until others may receive them again, 1 ms to max_visibility, default the setting of the queue (times visibility_factor for each attempt before); worker: a name for the history, up to 256 bytes. Name id and lease in ack, fail, extend, release and report. Exhausted and expired deliveries met on the way become dead letters. A paused queue returns nothing. WQ001 unknown queue, 22023 out of range';

-- workq._prepare: clear the head of a queue for receive.
-- Buries what is doomed, a page at once, so that many of them do not cost a walk each, and records for
-- the history that leases ran out. This is apart from the statement of receive because even an insert
-- of no rows costs a third of it. Returns the rows that are to be leased now, and locks no others.
create or replace function workq._prepare(queue_id int, wanted int, walked_from timestamptz, now timestamptz)
returns tid[]
language plpgsql
volatile
as $$
#variable_conflict use_column
declare
  v_queue workq.queue;
  v_rows tid[];
  v_reasons text[];
begin
  perform
  from generate_series(0, 10) p (priority)
  cross join lateral (
    select from workq.delivery d
    where d.queue_id = _prepare.queue_id and d.priority = p.priority and d.visible_at between walked_from and now
    limit 1
  ) d
  limit 1;
  if not found then
    return null;
  end if;

  select q.* into v_queue from workq.queue q where q.id = _prepare.queue_id;
  select array_agg(d.row_id), array_agg(d.doom)
  into v_rows, v_reasons
  from (
    select d.*
    from generate_series(0, 10) p (priority)
    cross join lateral (
      select d.ctid as row_id
      from workq.delivery d
      where d.queue_id = v_queue.id and d.priority = p.priority and d.visible_at between walked_from and now
      order by d.visible_at
      limit 1000
    ) s
    cross join lateral (
      select d.ctid as row_id, workq._doom(d.attempt, coalesce(d.max_attempts, v_queue.max_attempts), d.expires_at, now) as doom
      from workq.delivery d
      where d.ctid = s.row_id and d.visible_at <= now  -- again: its lease may have been extended since
        and workq._doom(d.attempt, coalesce(d.max_attempts, v_queue.max_attempts), d.expires_at, now) is not null
      limit 1
      for update skip locked
    ) d
    limit 1000
  ) d;
  if v_rows is not null then
    perform workq._bury(v_queue, v_rows, v_reasons);
    if cardinality(v_rows) = 1000 then
      return null;  -- there may be many more: enough for one call, idle() says that they are due
    end if;
  end if;

  select array_agg(d.row_id)
  into v_rows
  from (
    select d.*
    from generate_series(0, 10) p (priority)
    cross join lateral (
      select d.ctid as row_id
      from workq.delivery d
      where d.queue_id = v_queue.id and d.priority = p.priority and d.visible_at between walked_from and now
        and workq._doom(d.attempt, coalesce(d.max_attempts, v_queue.max_attempts), d.expires_at, now) is null
      order by d.visible_at
      limit wanted
      for update skip locked
    ) d
    limit wanted
  ) d;
  if v_queue.history <> 'none' then
    insert into workq.attempt (message_id, finished_at, started_at, lease, queue_id, attempt, outcome, worker)
    select d.message_id, now, d.received_at, d.lease, d.queue_id, d.attempt, 'timeout', d.worker
    from workq.delivery d
    where d.ctid = any (v_rows) and d.lease is not null;
  end if;
  return v_rows;
end;
$$;
comment on function workq._prepare is 'clears the head of a queue: makes dead letters of up to 1,000 that are doomed, records leases that ran out, and locks and returns the rows to lease (null: none)';

create or replace function workq._move_floor(queue_id int, now timestamptz, floor_seen bigint, walked_from timestamptz)
returns void
language plpgsql
volatile
as $$
#variable_conflict use_column
declare
  v_queue workq.queue;
  v_began timestamptz := clock_timestamp();
  v_first timestamptz;
  v_floor bigint;
  v_new bigint;
begin
  select q.* into v_queue from workq.queue q where q.id = _move_floor.queue_id;
  select min(d.visible_at) into v_first
  from generate_series(0, 10) p (priority)
  cross join lateral (
    select d.visible_at
    from workq.delivery d
    -- Up to the clock: beyond it lie the entries of all leases that were taken and acked.
    where d.queue_id = v_queue.id and d.priority = p.priority and d.visible_at between walked_from and now
    order by d.visible_at
    limit 1
  ) d;
  -- A look is both walks, this one and that of receive before, past the same dead entries.
  if walked_from = timestamptz '-infinity' then
    perform workq._rest(v_queue.next_look, v_began - (clock_timestamp() - v_began), interval '1 second');
  end if;
  v_floor := pg_sequence_last_value(v_queue.floor);
  -- A microsecond less, for the rounding.
  v_new := workq._micros(least(v_first, now - interval '50 milliseconds')) - 1;
  if v_floor is null or v_floor > workq._micros(v_began)
    or workq._micros(v_first) <= v_floor
    -- Lowered by somebody's look since this walk began: leave it. Not worth a write for less than 20 ms.
    or (v_new > v_floor + 20000 and v_floor >= floor_seen)
  then
    perform setval(v_queue.floor, v_new);
  end if;
end;
$$;
comment on function workq._move_floor is 'sets the floor of a queue to the first row that is left from where a walk began, 50 ms behind the clock at the most';
