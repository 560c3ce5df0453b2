-- Reporting: what a worker says of its progress.

-- Locks: the delivery. Changes no indexed column.
create or replace function workq.report(queue text, id bigint, lease bigint, status jsonb)
returns text
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_queue workq.queue;
begin
  select q.* into v_queue from workq.queue q where q.name = report.queue;
  if not found then
    perform workq._no_queue(queue);
  elsif id is null or lease is null then
    perform workq._bad_batch(array[id], array[lease]);
  end if;
  perform workq._enter(v_queue);
  update workq.delivery d
  set status = workq._cut_json(report.status)
  where d.message_id = report.id and d.queue_id + 0 = v_queue.id and d.lease = report.lease;
  return (workq._outcomes(queue, array[id], case when found then array[1::bigint] end, 'reported'))[1];
end;
$$;
comment on function workq.report is 'keeps the progress of a worker with the message, up to 64 KiB, then cut with a mark; get() shows it until the message is received again. Returns reported; stale: it was received again; gone: it is finished already. WQ001 unknown queue, 22023 null id or lease';
