-- Redriving: dead letters become messages again, under their old ids.

-- The message is written anew, so that its partition lives as long as the new delivery needs it.
-- A letter whose message is unfinished or dead in the target already stays where it is: not counted.
-- Locks: the dead letters, with SKIP LOCKED: two redrives share the work.
create or replace function workq.redrive(
  queue text, to_queue text default null, max_messages int default 1000, reason text default null,
  ids bigint[] default null, dry_run boolean default false)
returns bigint
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_queue workq.queue;
  v_target workq.queue;
  v_letters bigint[];
  v_count bigint;
begin
  select q.* into v_queue from workq.queue q where q.name = redrive.queue;
  if not found then
    perform workq._no_queue(queue);
  end if;
  select q.* into v_target from workq.queue q where q.name = coalesce(to_queue, redrive.queue);
  if not found then
    perform workq._no_queue(to_queue);
  elsif (max_messages between 1 and 100000) is not true then
    perform workq._invalid('max_messages', max_messages::text, '1 to 100000');
  end if;

  if dry_run is null then
    perform workq._invalid('dry_run', null, 'true or false');
  end if;

  perform workq._enter(v_target);
  v_letters := array(
    select l.message_id
    from workq.dead_letter l
    where l.queue_id = v_queue.id
      and (redrive.reason is null or l.reason = redrive.reason)
      and (redrive.ids is null or l.message_id = any (redrive.ids))
      and not exists (select from workq.delivery d where d.message_id = l.message_id and d.queue_id + 0 = v_target.id)
      and (v_target.id = v_queue.id
        or not exists (select from workq.dead_letter t where t.queue_id = v_target.id and t.message_id = l.message_id))
    order by l.died_at, l.message_id
    limit max_messages
    for update skip locked);
  if dry_run then
    return cardinality(v_letters)::bigint;
  end if;

  with placed as (
    insert into workq.delivery (message_id, created_at, visible_at, queue_id, expires_at, max_attempts, priority)
    select l.message_id, v_now, v_now, v_target.id, v_now + v_target.ttl, l.max_attempts, l.priority
    from workq.dead_letter l
    where l.queue_id = v_queue.id and l.message_id = any (v_letters)
      and exists (select from workq.queue q where q.id = v_target.id)
    order by l.message_id
    on conflict (message_id, queue_id) do nothing
    returning message_id
  ), taken as (
    delete from workq.dead_letter l using placed p
    where l.queue_id = v_queue.id and l.message_id = p.message_id
    returning l.*
  ), stored as (
    insert into workq.message (id, created_at, queue_id, payload, headers, kind, content_type, body)
    select t.message_id, v_now, v_target.id, t.payload, t.headers, t.kind, t.content_type, t.body
    from taken t
  )
  select count(*) into v_count from taken;
  if v_count > 0 then
    perform workq._wake(v_target, v_now);
  end if;
  return v_count;
end;
$$;
comment on function workq.redrive is 'puts dead letters back to work, the oldest first, with attempt 0 and a fresh ttl, in the queue itself or in to_queue; returns how many. max_messages: 1 to 100000; reason: only those that died of it (attempts_exhausted, permanent, expired); ids: only these; dry_run: only counts. Those whose message is unfinished or dead in the target already stay and are not counted. WQ001 unknown queue, 22023 out of range';
