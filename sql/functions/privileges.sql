-- Nobody but the owner may call anything until it is granted: PostgreSQL grants EXECUTE to PUBLIC with
-- each function, and default privileges of a schema do not prevent that.
do $$
declare
  v_function regprocedure;
begin
  for v_function in select p.oid from pg_proc p where p.pronamespace = 'workq'::regnamespace loop
    execute format('revoke all on function %s from public', v_function);
  end loop;
end;
$$;
