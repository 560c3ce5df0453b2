-- Sweeping: what nobody received.
--
-- receive() buries what it meets. Sweep walks on through all deliveries, a bounded stretch a call, from
-- where the last one stopped, for those that nobody meets: of a paused queue, far behind in a backlog,
-- waiting for a retry beyond their ttl. It also finds deliveries that became visible below the floor,
-- and lowers the floor to them: should a look from the very beginning be longer than anybody's
-- statement_timeout, this finds late rows in the end.

create or replace function workq._doom_unmet(
  lease bigint, visible_at timestamptz, attempt int, max_attempts int, expires_at timestamptz, now timestamptz)
returns text
language sql
immutable
return case
  when visible_at <= now then workq._doom(attempt, max_attempts, expires_at, now)
  -- Waiting for a retry, it can only expire; a valid lease is never ended.
  when lease is null then workq._doom(null, null, expires_at, now)
end;
comment on function workq._doom_unmet is 'why a delivery is given up on that nobody receives; null: it is not';

-- Locks: the doomed deliveries and old dead letters, with SKIP LOCKED. Any number may run at once.
create or replace function workq.sweep(max_rows int default 1000)
returns workq.sweep_counts
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_counts workq.sweep_counts := row(0, 0, 0);
  v_queue workq.queue;
  v_stretch record;
  v_start bigint;
  v_last bigint;
  v_scanned int;
  v_room int := max_rows;
  v_rows tid[];
  v_reasons text[];
begin
  if (max_rows between 1 and 100000) is not true then
    perform workq._invalid('max_rows', max_rows::text, '1 to 100000');
  end if;

  if workq._due(pg_sequence_last_value('workq.sweep_due'), v_now) then
    v_start := coalesce(pg_sequence_last_value('workq.sweep_message'), 0);
    v_last := v_start;
    loop
      v_scanned := 0;
      for v_stretch in
        with stretch as materialized (
          select d.queue_id, d.message_id, d.attempt, d.max_attempts, d.lease, d.visible_at, d.expires_at
          from workq.delivery d
          where d.message_id > v_last
          order by d.message_id
          limit 10 * max_rows
        )
        select
          q as queue, count(*)::int as scanned, max(s.message_id) as last,
          min(s.visible_at) filter (where s.visible_at <= v_now) as first_visible,
          array_agg(s.message_id order by s.message_id) filter (where
            workq._doom_unmet(s.lease, s.visible_at, s.attempt, coalesce(s.max_attempts, q.max_attempts), s.expires_at, v_now) is not null) as doomed
        from stretch s
        join workq.queue q on q.id = s.queue_id
        group by q
      loop
        v_queue := v_stretch.queue;
        v_scanned := v_scanned + v_stretch.scanned;
        v_last := greatest(v_last, v_stretch.last);
        if v_stretch.first_visible < workq._floor(pg_sequence_last_value(v_queue.floor), v_now) then
          perform setval(v_queue.floor, workq._micros(v_stretch.first_visible) - 1);
        end if;

        -- Locked now, and looked at again as it is now. Those that there is no room for come with the next round.
        perform workq._enter(v_queue);
        select array_agg(d.row_id), array_agg(d.doom)
        into v_rows, v_reasons
        from (
          select d.*
          from unnest(v_stretch.doomed) s (message_id)
          cross join lateral (
            select d.ctid as row_id,
              workq._doom_unmet(d.lease, d.visible_at, d.attempt, coalesce(d.max_attempts, v_queue.max_attempts), d.expires_at, v_now) as doom
            from workq.delivery d
            where d.message_id = s.message_id and d.queue_id + 0 = v_queue.id
              and workq._doom_unmet(d.lease, d.visible_at, d.attempt, coalesce(d.max_attempts, v_queue.max_attempts), d.expires_at, v_now) is not null
            limit 1
            for update skip locked
          ) d
          limit v_room
        ) d;
        if v_rows is not null then
          perform workq._bury(v_queue, v_rows, v_reasons);
          v_room := v_room - cardinality(v_rows);
          v_counts.exhausted := v_counts.exhausted + cardinality(array_positions(v_reasons, 'attempts_exhausted'));
          v_counts.expired := v_counts.expired + cardinality(array_positions(v_reasons, 'expired'));
        end if;
      end loop;

      if v_room = 0 then
        -- There may be more in this stretch: begin with it again.
        v_last := v_start;
        exit;
      end if;
      exit when v_scanned >= 10 * max_rows;
      -- The end: once around, from the beginning.
      v_last := 0;
      exit when v_start = 0;
      v_start := 0;
    end loop;
    perform setval('workq.sweep_message', v_last);
    if v_room = max_rows then
      perform workq._rest('workq.sweep_due', v_now);
    end if;
  end if;

  with old as (
    select l.queue_id, l.message_id
    from workq.queue q
    cross join lateral (
      select l.queue_id, l.message_id
      from workq.dead_letter l
      where l.queue_id = q.id and l.died_at < v_now - q.dead_retention
      order by l.died_at
      limit max_rows
      for update skip locked
    ) l
    limit max_rows
  ), removed as (
    delete from workq.dead_letter l using old o
    where l.queue_id = o.queue_id and l.message_id = o.message_id
    returning l.message_id
  )
  select count(*)::int into v_counts.dead_removed from removed;
  return v_counts;
end;
$$;
comment on function workq.sweep is 'makes dead letters of deliveries whose attempts are exhausted or whose ttl has passed and that nobody received (exhausted, expired), and removes dead letters past dead_retention (dead_removed), up to max_rows (1 to 100000) of each, and says how many. Safe to run from anywhere, at any time, many at once; every 10 s or so. 22023 out of range';
