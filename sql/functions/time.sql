-- Times in sequences are microseconds since 1970. A double holds them to the microsecond until 2250.

create or replace function workq._micros(at timestamptz)
returns bigint
language sql
stable
return (date_part('epoch', at) * 1000000)::bigint;
comment on function workq._micros is 'a time as microseconds since 1970';

create or replace function workq._time(micros bigint)
returns timestamptz
language sql
stable
return to_timestamp(micros / 1000000.0::double precision);
comment on function workq._time is 'microseconds since 1970 as a time';

-- A walk that may meet many dead index entries (while an old snapshot is held, they cannot be removed)
-- rests for 20 times as long as it took, so that it takes a twentieth of one core at most.

create or replace function workq._rest(due regclass, began timestamptz, at_least interval default '0')
returns void
language plpgsql
volatile
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_rest interval := least(20 * (v_now - began), interval '30 seconds');
begin
  -- What took less than 5 ms may be done again at once: not worth a write.
  if v_rest > greatest(at_least, interval '100 milliseconds') then
    perform setval(due, workq._micros(v_now + v_rest));
  end if;
end;
$$;
comment on function workq._rest is 'sets the sequence `due` to 20 times the duration of a walk ahead, at most 30 s; nothing when that is less than 100 ms or `at_least`';

create or replace function workq._due(due bigint, now timestamptz)
returns boolean
language sql
stable
-- null: never set. More than 30 s ahead: the clock was stepped back.
return coalesce(due not between workq._micros(now) + 1 and workq._micros(now) + 30000000, true);
comment on function workq._due is 'whether a time has come, by the value of its sequence; one of more than 30 s ahead counts as come';
