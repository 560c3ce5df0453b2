-- Running now: end a delay or a backoff.

-- Locks: the delivery.
create or replace function workq.run_now(queue text, id bigint)
returns boolean
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
  select q.* into v_queue from workq.queue q where q.name = run_now.queue;
  if not found then
    perform workq._no_queue(queue);
  elsif id is null then
    perform workq._invalid('id', null, 'the id of a message, from receive or a receipt');
  end if;
  perform workq._enter(v_queue);
  update workq.delivery d
  set visible_at = v_now,
      -- The ttl counts from when it first became visible: that is now.
      expires_at = case when d.received_at is null then d.expires_at - (d.visible_at - v_now) else d.expires_at end
  where d.message_id = run_now.id and d.queue_id + 0 = v_queue.id and d.lease is null and d.visible_at > v_now;
  if found then
    perform workq._wake(v_queue, v_now);
    return true;
  end if;
  return false;
end;
$$;
comment on function workq.run_now is 'makes a delayed or backing-off message receivable now; false when it is not waiting for a time (ready, leased, finished, dead, unknown). WQ001 unknown queue, 22023 null id';
