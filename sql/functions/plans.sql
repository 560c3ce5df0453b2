-- Plans are pinned.
--
-- Queue tables go from empty to a million rows between two ANALYZEs, and a plan that flips to a bitmap
-- scan reads every dead entry. So the functions that are called all the time may only walk indexes, and
-- plan once for a session (a generic plan): planning the statement of receive anew costs more than
-- running it. jit would start for the price that a plan has with its alternatives switched off.
-- Helpers run under the settings of the function that called them.
do $$
declare
  v_function text;
  v_setting text;
begin
  foreach v_function in array array[
    'enqueue', 'enqueue_many', 'receive', 'idle', 'ack', 'ack_many', 'fail', 'fail_many', 'extend', 'extend_many',
    'release', 'release_many', 'report', 'cancel', 'run_now', 'redrive', 'peek', 'get', 'sweep']
  loop
    foreach v_setting in array array[
      'enable_seqscan = off', 'enable_bitmapscan = off', 'enable_hashjoin = off', 'enable_mergejoin = off',
      'enable_sort = off', 'jit = off', 'plan_cache_mode = force_generic_plan']
    loop
      execute format('alter function workq.%I set %s', v_function, v_setting);
    end loop;
  end loop;
end;
$$;
