-- Giving up on deliveries: where dead letters come from.
--
-- The caller has locked the deliveries, in an earlier statement, and names their rows. A dead letter carries its own copy of the message. Where the
-- queue has a dead_letter_queue the delivery moves there instead, with a fresh ttl and no attempt;
-- a message that is unfinished or dead there already stays a dead letter here: a move never collides.

create or replace function workq._bury(
  q workq.queue, rows tid[], reasons text[], errors text[] default null, details jsonb[] default null)
returns void
language plpgsql
volatile
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_target workq.queue;
begin
  if q.dead_letter_queue is not null then
    select k.* into v_target from workq.queue k where k.id = q.dead_letter_queue;
    perform workq._enter(v_target);
  end if;

  with doomed as (
    delete from workq.delivery d
    using unnest(rows, reasons, errors, details) b (row_id, reason, error, details)
    where d.ctid = b.row_id
    returning d.*, b.reason, workq._cut(b.error) as error, workq._cut_json(b.details) as details
  ), moved as (
    insert into workq.delivery (message_id, created_at, visible_at, queue_id, expires_at, priority)
    select x.message_id, x.created_at, v_now, v_target.id, v_now + v_target.ttl, x.priority
    from doomed x
    where exists (select from workq.queue k where k.id = v_target.id)
      and not exists (select from workq.dead_letter l where l.queue_id = v_target.id and l.message_id = x.message_id)
    on conflict (message_id, queue_id) do nothing
    returning message_id
  ), kept as (
    insert into workq.attempt (message_id, finished_at, started_at, lease, queue_id, attempt, outcome, reason, worker, error, details)
    select x.message_id, v_now, x.received_at, x.lease, q.id, x.attempt, 'dead', x.reason, x.worker, x.error, x.details
    from doomed x
    where q.history <> 'none'
  )
  insert into workq.dead_letter (
    queue_id, message_id, died_at, reason, attempt, max_attempts, priority, error, details, enqueued_at,
    kind, headers, payload, content_type, body)
  select
    q.id, x.message_id, v_now, x.reason, x.attempt, x.max_attempts, x.priority, x.error, x.details, x.created_at,
    m.kind, m.headers, m.payload, m.content_type, m.body
  from doomed x
  left join lateral (
    select m.* from workq.message m where m.id = x.message_id and m.created_at = x.created_at limit 1
  ) m on true
  where x.message_id not in (select v.message_id from moved v)
  -- A redrive into this queue that ran beside an earlier burial can leave both; the later one stands.
  on conflict (queue_id, message_id) do update
  set died_at = excluded.died_at, reason = excluded.reason, attempt = excluded.attempt, error = excluded.error, details = excluded.details;

  if v_target.id is not null then
    perform workq._wake(v_target, v_now);
  end if;
end;
$$;
comment on function workq._bury is 'makes dead letters of deliveries that the caller has locked, or moves them to the dead letter queue; one history row each';
