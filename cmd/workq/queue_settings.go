package main

import "github.com/spf13/cobra"

// settingFlags are the settings of a queue, named and typed as SQL has them.
func settingFlags(cmd *cobra.Command) {
	for _, s := range []struct{ name, typ, usage string }{
		{"visibility", "interval", "how long a lease lasts"},
		{"visibility-factor", "float8", "the lease of the nth attempt is visibility × factor^(n-1)"},
		{"max-visibility", "interval", "no lease and no extension is longer"},
		{"max-attempts", "int", "deliveries before a message is a dead letter"},
		{"retry-delays", "interval[]", "waits after the 1st, 2nd, … failure, the last repeats ('1 s,10 s,1 min')"},
		{"retry-jitter", "float8", "share of the wait that is random, 0 to 1"},
		{"ttl", "interval", "unfinished for so long: a dead letter"},
		{"retention", "interval", "how long finished messages and history are kept"},
		{"dead-retention", "interval", "how long dead letters are kept"},
		{"dead-letter-queue", "text", "where dead letters go instead of staying here"},
		{"history", "text", "attempts to keep: all, failures or none"},
		{"max-payload-bytes", "int", "the largest payload and body together"},
		{"max-depth", "bigint", "refuse more unfinished messages than this"},
		{"notify", "boolean", "wake sleeping workers (--notify=false: they poll)"},
		{"paused", "boolean", "hand out nothing (--paused=false: go on)"},
	} {
		sqlFlag(cmd.Flags(), s.name, s.typ, s.usage)
	}
	completeFlag(cmd, "dead-letter-queue")
	_ = cmd.RegisterFlagCompletionFunc("history", cobra.FixedCompletions([]string{"all", "failures", "none"}, cobra.ShellCompDirectiveNoFileComp))
}
