package main

import (
	"github.com/spf13/cobra"

	"github.com/pgworkq/workq/cmd/workq/demo"
)

func newDemo() *cobra.Command { return demo.Command() }
