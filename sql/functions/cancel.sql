-- Cancelling: end a message whatever it waits for. A worker that has it is told at its next call.

-- Locks: the delivery.
create or replace function workq.cancel(queue text, id bigint)
returns text
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_queue workq.queue;
  v_leased boolean;
begin
  select q.* into v_queue from workq.queue q where q.name = cancel.queue;
  if not found then
    perform workq._no_queue(queue);
  elsif id is null then
    perform workq._invalid('id', null, 'the id of a message, from receive or a receipt');
  end if;
  perform workq._enter(v_queue);
  with cancelled as (
    delete from workq.delivery d
    where d.message_id = cancel.id and d.queue_id + 0 = v_queue.id
    returning d.*
  ), kept as (
    insert into workq.attempt (message_id, finished_at, started_at, lease, queue_id, attempt, outcome, worker)
    select c.message_id, v_now, c.received_at, c.lease, c.queue_id, c.attempt, 'cancelled', c.worker
    from cancelled c
    where v_queue.history <> 'none'
  )
  select c.lease is not null and c.visible_at > v_now into v_leased from cancelled c;
  return case when v_leased then 'revoked' when not v_leased then 'cancelled' else 'gone' end;
end;
$$;
comment on function workq.cancel is 'ends an unfinished message. Returns cancelled: it was waiting; revoked: a worker has it, and its next ack, fail, extend, release or report is told gone; gone: there was nothing to cancel (finished, or a dead letter). WQ001 unknown queue, 22023 null id';
