package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "workq",
		Short: "A work queue that lives inside PostgreSQL",
		Long: `workq is a work queue that lives inside PostgreSQL: the queue is SQL functions in the schema
workq, and this command is for people.

The database is the one at --database-url, else at $DATABASE_URL, else where the PG* variables
say, as for psql. Durations are intervals as PostgreSQL reads them: '30 s', '5 min', 30s, 5m, 2d
(m is minutes, mon is months). Data goes to stdout, everything else to stderr.

Exit status: 0 done, 1 failed, 2 called wrongly, 130 interrupted.`,
		Example: `  workq dev                                   # a throwaway PostgreSQL to try it on
  export DATABASE_URL=postgres://…            # what it printed
  workq queue create emails --visibility '1 min'
  workq enqueue emails '{"to": "ada@example.com"}'
  workq work emails --concurrency 4 -- ./send-email
  workq stats`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.PersistentFlags().String("database-url", "", "connection `URL` or key=value string (others can see it in the list of processes; $DATABASE_URL they cannot)")
	root.PersistentFlags().Bool("json", false, "print data as JSON, with the columns of SQL as names")
	root.AddGroup(
		&cobra.Group{ID: "setup", Title: "Installing:"},
		&cobra.Group{ID: "work", Title: "Messages in, messages out:"},
		&cobra.Group{ID: "look", Title: "Looking:"},
		&cobra.Group{ID: "manage", Title: "Managing:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("setup", newDev(), newDemo(), newMigrate(), newVersion())
	add("work", newEnqueue(), newWork())
	add("look", newStats(), newPeek(), newGet(), newHistory(), newDead())
	add("manage", newQueue(), newCancel(), newRunNow(), newRedrive(), newSweep(), newMaintain())
	finish(root)
	return root
}

// finish gives every command what follows from its usage line: how many arguments it takes, the
// completion of queue names, and errors that tell a wrong call from a failure.
func finish(c *cobra.Command) {
	for _, sub := range c.Commands() {
		finish(sub)
	}
	if c.HasSubCommands() && c.HasParent() && c.RunE == nil {
		c.RunE = func(c *cobra.Command, args []string) error { return wrongCommand(c, args) }
		c.Args = cobra.ArbitraryArgs
		return
	}
	if c.RunE == nil {
		return
	}
	if c.Args == nil {
		c.Args = argsOf(c)
	}
	if c.ValidArgsFunction == nil {
		c.ValidArgsFunction = completeArgs
	}
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := run(c, args); err != nil {
			return &runError{err}
		}
		return nil
	}
}

// argsOf reads the usage line: capitals are arguments, those in brackets may be left out.
func argsOf(c *cobra.Command) cobra.PositionalArgs {
	names := strings.Fields(c.Use)[1:]
	required := 0
	for _, name := range names {
		if !strings.HasPrefix(name, "[") {
			required++
		}
	}
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < required:
			return fmt.Errorf("%s is missing", names[len(args)])
		case len(args) > len(names):
			return fmt.Errorf("too many arguments: %q", args[len(names)])
		}
		return nil
	}
}

func wrongCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		var names []string
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				names = append(names, sub.Name())
			}
		}
		return fmt.Errorf("say what to do: %s", strings.Join(names, ", "))
	}
	msg := fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath())
	c.SuggestionsMinimumDistance = 2
	if s := c.SuggestionsFor(args[0]); len(s) > 0 {
		msg += fmt.Sprintf(", did you mean %q?", s[0])
	}
	return fmt.Errorf("%s", msg)
}
