-- Plans are pinned.
--
-- Queue tables go from empty to a million rows between two ANALYZEs, and a plan that flips to a bitmap
-- scan reads every dead entry. So the functions that are called all the time may only walk indexes, and
-- plan once for a session (a generic plan): planning the statement of receive anew costs more than
-- running it. jit would start for the price that a plan has with its alternatives switched off.
-- Helpers run under the settings of the function that called them.
--
-- Each setting costs every call a microsecond or two, so the functions of the hot path have no more than
-- they need: their joins are written so that only a nested loop can carry them out (see ack.sql), and
-- with seqscan and sort off, what is read in order is read from an index.
do $$
declare
  v_function text;
  v_setting text;
  v_pins text[] := array['enable_seqscan', 'enable_sort', 'jit'];
begin
  foreach v_function in array array[
    'enqueue', 'enqueue_many', 'receive', 'idle', 'ack', 'ack_many', 'fail', 'fail_many', 'extend', 'extend_many',
    'release', 'release_many', 'report', 'cancel', 'run_now', '', 'redrive', 'peek', 'get', 'sweep']
  loop
    if v_function = '' then
      v_pins := v_pins || array['enable_bitmapscan', 'enable_hashjoin', 'enable_mergejoin'];
      continue;
    end if;
    foreach v_setting in array v_pins loop
      execute format('alter function workq.%I set %I = off', v_function, v_setting);
    end loop;
    execute format('alter function workq.%I set plan_cache_mode = force_generic_plan', v_function);
  end loop;
end;
$$;
