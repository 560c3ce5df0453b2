-- Looking: what is in a queue, and what became of a message. Nothing here leases or locks.

create or replace function workq._state(lease bigint, visible_at timestamptz, attempt int, now timestamptz)
returns text
language sql
immutable
return case
  when visible_at <= now then 'ready'
  when lease is not null then 'leased'
  when attempt > 0 then 'retrying'
  else 'delayed'
end;
comment on function workq._state is 'the state of an unfinished delivery: ready (a lease that ran out is ready too), leased, retrying or delayed';

create or replace function workq._message_info(q workq.queue, d workq.delivery, m workq.message)
returns workq.message_info
language sql
volatile
return row(
  d.message_id, q.name, workq._state(d.lease, d.visible_at, d.attempt, clock_timestamp()), d.attempt,
  coalesce(d.max_attempts, q.max_attempts), d.lease, d.visible_at, d.received_at, d.created_at, d.expires_at,
  null, d.priority, d.worker, d.status, null, null, null,
  m.kind, m.headers, m.payload, m.body, m.content_type)::workq.message_info;
comment on function workq._message_info is 'an unfinished message as people see it';

create or replace function workq._letter_info(q workq.queue, l workq.dead_letter)
returns workq.message_info
language sql
stable
return row(
  l.message_id, q.name, 'dead', l.attempt, coalesce(l.max_attempts, q.max_attempts), null, null, null, l.enqueued_at,
  null, l.died_at, l.priority, null, null, null, l.reason, l.error,
  l.kind, l.headers, l.payload, l.body, l.content_type)::workq.message_info;
comment on function workq._letter_info is 'a dead letter as people see it';

create or replace function workq.peek(queue text, max_messages int default 10, state text default null)
returns setof workq.message_info
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_queue workq.queue;
begin
  select q.* into v_queue from workq.queue q where q.name = peek.queue;
  if not found then
    perform workq._no_queue(queue);
  elsif (max_messages between 1 and 10000) is not true then
    perform workq._invalid('max_messages', max_messages::text, '1 to 10000');
  elsif state not in ('ready', 'leased', 'retrying', 'delayed', 'dead') then
    perform workq._invalid('state', state, 'ready, leased, retrying, delayed or dead; null for all that is unfinished');
  end if;
  if state = 'dead' then
    return query
      select i.*
      from workq.dead_letter l
      cross join lateral workq._letter_info(v_queue, l) i
      where l.queue_id = v_queue.id
      order by l.died_at desc
      limit max_messages;
    return;
  end if;
  return query
    select i.*
    from generate_series(0, 10) p (priority)
    cross join lateral (
      select d
      from workq.delivery d
      where d.queue_id = v_queue.id and d.priority = p.priority
        and (peek.state is null or peek.state = workq._state(d.lease, d.visible_at, d.attempt, v_now))
        and d.visible_at >= case when peek.state in ('leased', 'retrying', 'delayed') then v_now else '-infinity' end
        and d.visible_at <= case when peek.state = 'ready' then v_now else 'infinity' end
      order by d.visible_at
      limit max_messages
    ) x
    left join lateral (
      select m from workq.message m where m.id = (x.d).message_id and m.created_at = (x.d).created_at limit 1
    ) y on true
    cross join lateral workq._message_info(v_queue, x.d, y.m) i
    limit max_messages;
end;
$$;
comment on function workq.peek is 'shows messages of a queue without receiving them, in the order in which they will be received. max_messages: 1 to 10000; state: ready, leased, retrying, delayed or dead (the latest first), default all that are unfinished. WQ001 unknown queue, 22023 out of range';

create or replace function workq.get(queue text, id bigint)
returns workq.message_info
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_queue workq.queue;
  v_delivery workq.delivery;
  v_letter workq.dead_letter;
  v_last workq.attempt;
  v_message workq.message;
begin
  select q.* into v_queue from workq.queue q where q.name = get.queue;
  if not found then
    perform workq._no_queue(queue);
  elsif id is null then
    perform workq._invalid('id', null, 'the id of a message, from receive or a receipt');
  end if;

  select d.* into v_delivery from workq.delivery d where d.message_id = get.id and d.queue_id + 0 = v_queue.id;
  if found then
    select m.* into v_message from workq.message m where m.id = get.id and m.created_at = v_delivery.created_at;
    return workq._message_info(v_queue, v_delivery, v_message);
  end if;
  select l.* into v_letter from workq.dead_letter l where l.queue_id = v_queue.id and l.message_id = get.id;
  if found then
    return workq._letter_info(v_queue, v_letter);
  end if;

  -- It is finished: the history tells how, and the message may be there still.
  select a.* into v_last from workq.attempt a
  where a.message_id = get.id and a.queue_id = v_queue.id and a.outcome in ('acked', 'dead', 'cancelled', 'purged')
  order by a.finished_at desc
  limit 1;
  select m.* into v_message from workq.message m
  where m.id = get.id and (v_last.queue_id is not null or m.queue_id = v_queue.id)
  order by m.created_at desc
  limit 1;
  if v_last.queue_id is null and v_message.id is null then
    raise exception 'message not found' using errcode = 'WQ003',
      detail = format('queue is %L, id is %s', queue, coalesce(id::text, 'null')),
      hint = 'it never was in this queue, or it is finished and past the retention of the queue';
  end if;
  return row(
    get.id, v_queue.name, coalesce(v_last.outcome, 'finished'), v_last.attempt, null, v_last.lease, null, v_last.started_at,
    v_message.created_at, null, v_last.finished_at, null, v_last.worker, null, v_last.result, v_last.reason, v_last.error,
    v_message.kind, v_message.headers, v_message.payload, v_message.body, v_message.content_type)::workq.message_info;
end;
$$;
comment on function workq.get is 'shows a message. state: ready, leased, retrying, delayed, dead; for a finished one how it ended (acked, cancelled, purged), or finished where the queue keeps no history of it. WQ001 unknown queue, WQ003 unknown message';

create or replace function workq.history(queue text, id bigint)
returns setof workq.attempt_info
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_queue workq.queue;
begin
  select q.* into v_queue from workq.queue q where q.name = history.queue;
  if not found then
    perform workq._no_queue(queue);
  elsif id is null then
    perform workq._invalid('id', null, 'the id of a message, from receive or a receipt');
  end if;
  return query
    select a.message_id, a.attempt, a.lease, a.started_at, a.finished_at, a.outcome, a.reason, a.worker, a.error, a.details, a.result
    from workq.attempt a
    where a.message_id = history.id and a.queue_id = v_queue.id
    order by a.finished_at, a.attempt;
end;
$$;
comment on function workq.history is 'how the attempts of a message ended, the first first: acked, retry, dead (with the reason), released, timeout (its lease ran out), cancelled, purged. Kept as the setting history of the queue says, for its retention. WQ001 unknown queue';

create or replace function workq.dead_letters(queue text, max_messages int default 100, reason text default null, kind text default null)
returns setof workq.dead_letter_info
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_queue workq.queue;
begin
  select q.* into v_queue from workq.queue q where q.name = dead_letters.queue;
  if not found then
    perform workq._no_queue(queue);
  elsif (max_messages between 1 and 10000) is not true then
    perform workq._invalid('max_messages', max_messages::text, '1 to 10000');
  end if;
  return query
    select l.message_id, l.died_at, l.reason, l.attempt, coalesce(l.max_attempts, v_queue.max_attempts), l.priority::int,
      l.error, l.details, l.enqueued_at, l.kind, l.headers, l.payload, l.body, l.content_type
    from workq.dead_letter l
    where l.queue_id = v_queue.id
      and (dead_letters.reason is null or l.reason = dead_letters.reason)
      and (dead_letters.kind is null or l.kind = dead_letters.kind)
    order by l.died_at desc
    limit max_messages;
end;
$$;
comment on function workq.dead_letters is 'the dead letters of a queue, the latest first; redrive puts them back to work. max_messages: 1 to 10000; reason (attempts_exhausted, permanent, expired) and kind: only those. WQ001 unknown queue, 22023 out of range';
