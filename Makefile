# workq. `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Major version of PostgreSQL for `test` and `setup`: 14, 15, 16, 17 or 18.
PG ?= 15
# Only Go tests that match, and more arguments for go test: make test RUN=Migrate ARGS=-short
RUN ?=
ARGS ?=

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

.PHONY: setup
setup: ## Install what is missing: PostgreSQL, pgTAP, PgBouncer; PG=18 adds that server
	@.ci/setup $(PG)

.PHONY: test
test: setup ## All tests on PostgreSQL 15, or PG=14, 16, 17, 18
	@go run ./tests/run -pg $(PG) -run '$(RUN)' -args '$(ARGS)' go pgtap

.PHONY: pgtap
pgtap: setup ## The SQL tests only
	@go run ./tests/run -pg $(PG) pgtap

.PHONY: lint
lint: ## gofmt, go vet, staticcheck, and plpgsql_check over every function
	@.ci/setup 15
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt -w is needed:"; echo "$$unformatted"; exit 1; fi
	@go vet ./...
	@go run $(STATICCHECK) ./...
	@if [ -e tests/bench/go.mod ]; then cd tests/bench && go vet ./...; fi
	@go run ./tests/run -pg 15 check

.PHONY: golangci
golangci: ## golangci-lint, which takes minutes to build at first
	@go run $(GOLANGCI) run ./...

.PHONY: demo
demo: setup build ## The main job on real input: hash the files of the Go distribution with four workers
	@bin/workq demo $(ARGS)

.PHONY: bench
bench: setup ## Benchmarks against peers
	@cd tests/bench && go run .

.PHONY: build
build: ## bin/workq
	@go build -o bin/workq ./cmd/workq

.PHONY: snapshot
snapshot: ## Freeze the functions for a release: VERSION=1.2.3
	@.ci/snapshot "$(VERSION)"

.PHONY: clean
clean: ## Remove what was built and downloaded
	@rm -rf bin .cache
