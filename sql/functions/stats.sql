-- Statistics, counted when asked for: nothing on the hot path keeps score.

-- workq._count: exact up to a limit; past it what the planner expects, and `estimated` is true.
create or replace function workq._count(from_where text, estimated inout boolean, n out bigint)
language plpgsql
volatile
as $$
-- @plpgsql_check_options: security_warnings = off, extra_warnings = off
#variable_conflict use_column
declare
  v_limit int := 100000;
  v_plan json;
begin
  execute format('select count(*) from (select from %s limit %s) r', from_where, v_limit + 1) into n;
  if n > v_limit then
    execute 'explain (format json) select from ' || from_where into v_plan;
    n := greatest(n, (v_plan -> 0 -> 'Plan' ->> 'Plan Rows')::double precision::bigint);
    estimated := true;
  end if;
end;
$$;
comment on function workq._count is 'the number of rows of `table where condition` (the caller quotes), exact to 100,000; estimated is set when it is not';

-- workq._rates: rows a second, for each queue, over the last minute. Read off the end of the newest
-- partition: at most 1,000 pages, and then over what they cover of the minute.
create or replace function workq._rates(parent regclass, at text, condition text, queue_id out int, per_second out double precision)
returns setof record
language plpgsql
volatile
as $$
-- @plpgsql_check_options: security_warnings = off, extra_warnings = off
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_partition regclass;
  v_from bigint;
begin
  select p.relation into v_partition from workq._partitions(parent) p where v_now >= p.lower and v_now < p.upper;
  v_from := greatest(pg_relation_size(v_partition) / current_setting('block_size')::int - 1000, 0);
  return query execute format(
    $q$
      with recent as materialized (
        select r.queue_id, r.%1$I as at, %2$s as counts from %3$s r where r.ctid >= '(%4$s,0)'
      ), span as (
        select case when %4$s = 0 then 60 else greatest(least(60, date_part('epoch', $1 - min(r.at))), 0.001) end as seconds from recent r
      )
      select r.queue_id, count(*) / min(s.seconds)
      from recent r
      cross join span s
      where r.counts and r.at > $1 - interval '1 minute'
      group by r.queue_id
    $q$, at, condition, v_partition, v_from) using v_now;
end;
$$;
comment on function workq._rates is 'rows a second of message or attempt in the last minute, for each queue that has any; at: the column with their time, condition: those that count';

create or replace function workq.stats(queue text default null)
returns setof workq.queue_stats
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set datestyle = 'ISO'
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_queue workq.queue;
  v_stats workq.queue_stats;
  v_enqueued jsonb := (select jsonb_object_agg(r.queue_id, r.per_second) from workq._rates('workq.message', 'created_at', 'true') r);
  v_acked jsonb := (select jsonb_object_agg(r.queue_id, r.per_second) from workq._rates('workq.attempt', 'finished_at', $q$r.outcome = 'acked'$q$) r);
  v_failed jsonb := (select jsonb_object_agg(r.queue_id, r.per_second) from workq._rates('workq.attempt', 'finished_at', $q$r.outcome in ('retry', 'dead', 'timeout')$q$) r);
  v_waiting text;
begin
  for v_queue in
    select q.* from workq.queue q where stats.queue is null or q.name = stats.queue order by q.name
  loop
    v_stats.queue := v_queue.name;
    v_stats.paused := v_queue.paused;
    v_stats.estimated := false;

    select c.* into v_stats.estimated, v_stats.ready
    from workq._count(format('workq.delivery d where d.queue_id = %s and d.visible_at <= %L', v_queue.id, v_now), v_stats.estimated) c;
    v_waiting := format('workq.delivery d where d.queue_id = %s and d.visible_at > %L and ', v_queue.id, v_now);
    select c.* into v_stats.estimated, v_stats.leased
    from workq._count(v_waiting || 'd.lease is not null', v_stats.estimated) c;
    select c.* into v_stats.estimated, v_stats.retrying
    from workq._count(v_waiting || 'd.lease is null and d.attempt > 0', v_stats.estimated) c;
    select c.* into v_stats.estimated, v_stats.delayed
    from workq._count(v_waiting || 'd.lease is null and d.attempt = 0', v_stats.estimated) c;
    select c.* into v_stats.estimated, v_stats.dead
    from workq._count(format('workq.dead_letter l where l.queue_id = %s', v_queue.id), v_stats.estimated) c;

    select v_now - min(d.visible_at) into v_stats.oldest_ready
    from generate_series(0, 10) p (priority)
    cross join lateral (
      select d.visible_at from workq.delivery d
      where d.queue_id = v_queue.id and d.priority = p.priority and d.visible_at <= v_now
      order by d.visible_at
      limit 1
    ) d;

    v_stats.enqueued_per_second := coalesce((v_enqueued ->> v_queue.id::text)::double precision, 0);
    v_stats.acked_per_second := coalesce((v_acked ->> v_queue.id::text)::double precision, 0);
    v_stats.failed_per_second := coalesce((v_failed ->> v_queue.id::text)::double precision, 0);
    return next v_stats;
  end loop;
  if queue is not null and not found then
    perform workq._no_queue(queue);
  end if;
end;
$$;
comment on function workq.stats is 'counts and rates of a queue, or of all: ready, delayed, leased, retrying (unfinished) and dead, each exact to 100,000, then estimated (estimated is true); oldest_ready: how long the oldest ready message has been ready; rates a second over the last minute, from the history that the queue keeps. WQ001 unknown queue';
