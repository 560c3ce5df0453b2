-- Wake-ups: who sleeps, and when a notification is worth its price.
--
-- NOTIFY takes one lock for the whole database from just before commit to its end, so it is sent only
-- while somebody sleeps. idle() marks the queue with "somebody sleeps until T"; whatever makes a
-- message receivable before T notifies while T lies ahead. Nobody clears the mark: a worker that did
-- would race with another that just went to sleep, and a sender that did and rolled back would leave
-- all asleep. It lapses when all are busy.
--
-- A receiver that was woken and has room for more stamps "quiet for 10 ms" (see receive) and is told by
-- idle() to look again when that ends; until then nobody notifies. A sender never stamps.
--
-- A notification carries nothing: anyone may LISTEN.

create or replace function workq._wake(q workq.queue, visible_at timestamptz)
returns void
language plpgsql
volatile
as $$
#variable_conflict use_column
declare
  v_now bigint := workq._micros(clock_timestamp());
begin
  if q.notify and not q.paused
    and pg_sequence_last_value(q.sleepers) > v_now and workq._time(pg_sequence_last_value(q.sleepers)) > visible_at
    -- A quiet time of more than 10 ms ahead was left by a clock that was stepped back.
    and coalesce(pg_sequence_last_value(q.quiet) not between v_now and v_now + 10000, true)
  then
    perform pg_notify('workq.' || q.name, '');
  end if;
end;
$$;
comment on function workq._wake is 'notifies those who sleep on a queue, if any do, that a message is or becomes receivable at visible_at';

-- workq._enter: hold a queue's door open until this transaction ends, before something is put into it.
-- Reading a sequence keeps a lock on it until commit. drop_queue takes a stronger one on the same
-- sequence before it looks whether the queue is empty, so that it waits for whoever went in before.
-- Whoever comes later must look in its next statement whether the queue is still there.
create or replace function workq._enter(q workq.queue)
returns void
language plpgsql
volatile
as $$
#variable_conflict use_column
begin
  perform pg_sequence_last_value(q.sleepers);
  -- An older snapshot would still see a queue that was dropped meanwhile; this raises 40001 then.
  if current_setting('transaction_isolation') <> 'read committed' then
    perform from workq.queue k where k.id = q.id for key share;
  end if;
end;
$$;
comment on function workq._enter is 'locks a queue against drop_queue until the transaction ends; afterwards look in a new statement whether it is still there';

-- workq.idle: "about to sleep".
-- LISTEN on the channel first, call idle, receive once more, then wait for a notification or next_due.
-- Locks: a row that is receivable now, with SKIP LOCKED; none as a rule.
create or replace function workq.idle(queue text)
returns workq.wakeup
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_queue workq.queue;
  v_until timestamptz;
  v_quiet timestamptz;
  v_rested boolean;  -- since the last search that took long: search from the very beginning
  v_floor bigint;
  v_due timestamptz;
begin
  select q.* into v_queue from workq.queue q where q.name = idle.queue;
  if not found then
    perform workq._no_queue(idle.queue);
  end if;

  if v_queue.notify then
    -- Refreshed when half of it is gone: one small write in half a minute, however many sleep.
    v_until := workq._time(pg_sequence_last_value(v_queue.sleepers));
    if v_until between v_now + interval '30 seconds' and v_now + interval '60 seconds' then
      null;
    else
      v_until := v_now + interval '60 seconds';
      perform setval(v_queue.sleepers, workq._micros(v_until));
    end if;
  else
    -- Nobody will notify: look every second.
    v_until := v_now + interval '1 second';
  end if;

  if v_queue.paused then
    return row('workq.' || v_queue.name, v_until)::workq.wakeup;
  end if;

  v_quiet := workq._time(pg_sequence_last_value(v_queue.quiet));
  if v_quiet between v_now and v_now + interval '10 milliseconds' then
    v_until := v_quiet;
  end if;

  -- Is there something that receive left, because it stopped after so many dead letters or because it
  -- committed late, below the floor? Then the receive that follows is to find it.
  v_rested := workq._due(pg_sequence_last_value(v_queue.next_due_look), v_now);
  v_floor := pg_sequence_last_value(v_queue.floor);
  select min(d.visible_at) into v_due
  from generate_series(0, 10) p (priority)
  cross join lateral (
    select d.visible_at
    from workq.delivery d
    where d.queue_id = v_queue.id and d.priority = p.priority
      and d.visible_at between case when v_rested then timestamptz '-infinity' else workq._floor(v_floor, v_now) end and v_now
    order by d.visible_at
    limit 1
    for update skip locked
  ) d;
  if v_due is not null then
    if workq._micros(v_due) <= v_floor then
      perform setval(v_queue.floor, workq._micros(v_due) - 1);
    end if;
    return row('workq.' || v_queue.name, v_now)::workq.wakeup;
  end if;

  -- The end of the next delay, backoff or lease.
  if not v_rested then
    return row('workq.' || v_queue.name,
      least(v_until, workq._time(pg_sequence_last_value(v_queue.next_due_look))))::workq.wakeup;
  end if;
  select min(d.visible_at) into v_due
  from generate_series(0, 10) p (priority)
  cross join lateral (
    select d.visible_at
    from workq.delivery d
    where d.queue_id = v_queue.id and d.priority = p.priority and d.visible_at > v_now
    order by d.visible_at
    limit 1
  ) d;
  perform workq._rest(v_queue.next_due_look, v_now);
  return row('workq.' || v_queue.name, least(v_until, v_due))::workq.wakeup;
end;
$$;
comment on function workq.idle is 'says that the caller is about to sleep on a queue; returns the channel to LISTEN on (workq.<queue>) and next_due, the time at which to receive again even without a notification: never null, at most 60 s ahead (1 s where the queue has notify off). WQ001 unknown queue';
