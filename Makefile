# make test passes the tests; it installs what is missing where it can, and says plainly how where it cannot.

STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2

# Without paths of this machine in the compiled packages, every clone and work tree shares what the cache holds.
export GOFLAGS := $(shell go env GOFLAGS) -trimpath

.PHONY: test race lint deps fuzz mutants bench kill torn browser screenshots chaos pooler failover upgrade postfix build \
	build-libcrypto client release packages-test

build:
	CGO_ENABLED=0 go build -trimpath -o bin/postrider ./cmd/postrider

# The same program with RSA signatures by OpenSSL's libcrypto (docs/performance.md). Needs a C compiler and OpenSSL's headers.
build-libcrypto:
	CGO_ENABLED=1 go test -tags libcrypto ./internal/mail/dkim
	CGO_ENABLED=1 go build -tags libcrypto -trimpath -o bin/postrider ./cmd/postrider

# The generated files of the package client, from the OpenAPI document that the code describes.
client:
	go run ./scripts/genclient

# The tests of all packages on both engines. One PostgreSQL server is started for all of them. Packages that take long are
# named first, so that none of them runs alone in the end. make lint runs go vet. TESTFLAGS=-count=1 ignores cached results.
LONGEST = ./e2e ./internal/front/api ./internal/cli ./internal/sending/delivery ./internal/sending/emails \
	./internal/platform/db ./internal/campaigns/broadcasts ./internal/platform/jobs ./internal/campaigns/automations \
	./internal/outbound/webhooks ./internal/sending/domains ./internal/sending/metrics
TESTFLAGS ?=
# One package more than there are processors, because some tests mostly wait.
PACKAGES ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# -w leaves debug information out of the test programs, which halves the time to link a hundred of them.
GOTEST = go test -vet=off -ldflags=-w
# On a new machine, tests of ./e2e also wait while an S3 server and the program itself are compiled: that took 18 minutes
# in all on two cores.
test: deps
	go run ./scripts/testserver $(GOTEST) -p $(PACKAGES) -timeout 40m $(TESTFLAGS) $(LONGEST) ./...

# The tests of packages that start goroutines, or that many goroutines share, with the race detector. They run on SQLite:
# the code above package db is the same on both engines. The package db runs on both.
# -race needs cgo's compiler; everything else is built without cgo. SQLite itself is C translated to Go with memory of its
# own. It is not instrumented: it has no data of ours, and it would take four times as long. The skipped tests start no
# goroutines of their own; the second reads an email of 30 MB for a minute and a half with the race detector. The third
# reads the query plans of both engines for seven minutes, of statements that the other tests run, too.
RACE = -race "-gcflags=modernc.org/...=-race=false -d=checkptr=0" \
	-skip 'TestDeletedTeamLeavesNoRows|TestOutboxHostileEmails|TestStatementsGoByIndexes'
CONCURRENT = ./internal/cli ./internal/node/... ./internal/platform/jobs ./internal/campaigns/automations \
	./internal/campaigns/broadcasts ./internal/outbound/webhooks ./internal/outbound/receiving ./internal/outbound/forwards \
	./internal/outbound/alarms ./internal/platform/telemetry ./internal/platform/tracing \
	./internal/outbound/eventstream ./internal/outbound/requestlog ./internal/outbound/notifications \
	./internal/sending/delivery ./internal/sending/delivery/capture ./internal/sending/domains \
	./internal/sending/dailyreports ./internal/sending/tlsreports ./internal/sending/dmarcreports \
	./internal/sending/tlspolicies ./internal/sending/servedpolicies ./internal/sending/zones \
	./internal/sending/tracking ./internal/sending/preflight \
	./internal/audience/contacts ./internal/audience/imports ./internal/accounts/users ./internal/accounts/teams \
	./internal/front/submission ./internal/front/links ./internal/platform/audit ./internal/platform/blob \
	./internal/platform/certs ./internal/platform/fairshare ./internal/platform/netguard ./internal/platform/nodelimits \
	./internal/mail/authres ./internal/mail/milter ./internal/mail/nameserver ./internal/mail/resolve ./internal/mail/smtpclient ./internal/mail/smtpserver \
	./internal/mail/smtpsink ./internal/mail/smtptest
race: deps
	$(GOTEST) $(RACE) -timeout 20m $(TESTFLAGS) ./internal/platform/db
	POSTRIDER_TEST_ENGINE=sqlite $(GOTEST) -p $(PACKAGES) $(RACE) -timeout 20m $(TESTFLAGS) $(CONCURRENT)

lint:
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$unformatted" ]; then \
		echo "not gofmt'ed: $$unformatted"; exit 1; fi
	go vet ./...
	go vet -tags postfix,chaos,browser,failover ./e2e
	go vet -tags packages ./e2e/packages
	go vet -tags tls ./internal/sending/tlspolicies ./internal/sending/delivery
	go vet -tags mailauth ./internal/mail/dmarc
	go run $(STATICCHECK) ./...

deps:
	@bash scripts/deps

# Each fuzz target for a while: make fuzz FUZZTIME=5m
FUZZTIME ?= 20s
fuzz:
	@bash scripts/fuzz $(FUZZTIME)

# Makes N small changes to the program, one at a time, and lists those that no test detects. scripts/mutants says more.
# make mutants N=20 SEED=7 PKG=./internal/platform/jobs, or MUTANTS="-only internal/platform/jobs/lanes.go:33" for those of a line.
N ?= 100
SEED ?= 1
PKG ?=
MUTANTS ?=
mutants: deps
	nice go run ./scripts/mutants -n $(N) --seed $(SEED) $(MUTANTS) $(PKG)

# End to end, on SQLite and on PostgreSQL.
bench: build deps
	bin/postrider bench
	bash scripts/with-postgres bin/postrider bench

# kill -9 at random moments, more rounds than make test has: make kill ROUNDS=20
ROUNDS ?= 20
kill: deps
	POSTRIDER_KILL_ROUNDS=$(ROUNDS) POSTRIDER_KILL_EMAILS=5000 POSTRIDER_KILL_RUNS=2000 go test -timeout 60m -count=1 -v -run TestKill ./e2e/

# People and their programs use the pages in a real Chromium; axe-core looks for barriers on every page, in both themes,
# for desktops and phones; and the first view is measured. make test has the tasks of the dashboard and a few pages.
browser: deps
	go test -tags browser -timeout 30m -count=1 -v -run 'Browser|SignIn|Passkey|Dashboard|Playwright' ./e2e/

# Pictures of every page with sample data, in both themes, for desktops and phones.
SCREENSHOTS ?= $(CURDIR)/bin/screenshots
screenshots: deps
	POSTRIDER_SCREENSHOTS=$(SCREENSHOTS) go test -tags browser -timeout 30m -count=1 -run Screenshots ./e2e/
	@echo "The pictures are in $(SCREENSHOTS)"

# Cuts the connection to PostgreSQL in each answer of the database in turn. make test does it in a sample of the answers.
torn: deps
	POSTRIDER_TEST_TORN=all go run ./scripts/testserver $(GOTEST) -timeout 60m -count=1 \
		-run 'Torn|LostAnswers|WithoutDatabase' ./internal/front/api ./internal/campaigns/automations \
		./internal/campaigns/broadcasts

# The tests reach PostgreSQL through PgBouncer in transaction mode, with lost commits. make pooler POOLED=./internal/...
POOLED ?= ./internal/platform/db ./internal/platform/jobs ./internal/platform/nodelimits
pooler: deps
	POSTRIDER_TEST_POOLER=1 POSTRIDER_TEST_ENGINE=postgres go run ./scripts/testserver $(GOTEST) -timeout 20m \
		$(TESTFLAGS) $(POOLED)

# Breaks databases, nodes, clocks and disks under load, one scenario at a time or several: make chaos ONLY=killed/sqlite SIDE=1
# Prints a line for each. disk-full mounts a small file system of its own, for which it needs root. Takes ten minutes.
ONLY ?= .
SIDE ?= 3
chaos: deps
	go test -tags chaos -timeout 60m -count=1 -v -parallel $(SIDE) -run 'TestChaos/$(ONLY)' ./e2e/

# Replaces the leader of a Patroni cluster with three servers under load, by a switchover and by kill -9 in turns:
# make failover MINUTES=20. With POOLER=1, nodes reach PostgreSQL through PgBouncer in transaction mode.
MINUTES ?= 4
POOLER ?=
failover:
	@bash scripts/deps failover
	POSTRIDER_FAILOVER_MINUTES=$(MINUTES) POSTRIDER_FAILOVER_POOLER=$(POOLER) go test -tags chaos,failover -timeout 120m \
		-count=1 -v -run TestFailover ./e2e/

# Continues with the data of an older program, and runs both side by side: make upgrade OLD=/path/of/postrider
OLD ?=
upgrade: deps
	POSTRIDER_OLD_PROGRAM=$(OLD) go test -tags chaos -timeout 10m -count=1 -v -run Upgrade ./e2e/

# Replaces three nodes with PostgreSQL one after the other under load: make rolling OLD=/path/of/postrider
.PHONY: rolling promote release-data
rolling: deps
	POSTRIDER_OLD_PROGRAM=$(OLD) go test -tags chaos -timeout 20m -count=1 -v -run RollingReplacement ./e2e/

# Moves a busy installation from SQLite to PostgreSQL, after moves that were killed: make promote WAITING=200000 KILLS=10
WAITING ?= 200000
KILLS ?= 10
promote: deps
	POSTRIDER_PROMOTE_WAITING=$(WAITING) POSTRIDER_PROMOTE_KILLS=$(KILLS) POSTRIDER_PROMOTE_MILLISECONDS=60000 go test -timeout 90m \
		-count=1 -v -run TestPromote ./e2e/

# Saves data of every kind for the tests of upgrades from a tagged release: make release-data VERSION=v0.1.0
VERSION ?=
release-data: deps
	@test -n "$(VERSION)" || { echo "VERSION is missing: make release-data VERSION=v0.1.0"; exit 1; }
	POSTRIDER_SAVE_RELEASE=$(CURDIR)/testdata/upgrade/$(VERSION) POSTRIDER_OLD_PROGRAM=$(OLD) go test -timeout 10m -count=1 \
		-run TestReleaseData ./e2e/

# Rotates the DKIM keys of two domains three times while emails are sent, and lets opendkim, rspamd and two versions of mailauth
# verify all of them: make rotation EMAILS=100000. The target fails if one of these programs is missing. make test sends 2,000.
.PHONY: rotation
EMAILS ?= 2000
rotation: deps
	cd scripts/mailauth && npm ci --no-audit --no-fund --silent
	POSTRIDER_ROTATION_EMAILS=$(EMAILS) go test -timeout 90m -count=1 -v -run TestRotationUnderLoad ./internal/sending/delivery

# Compares our verdicts about MTA-STS policies with those of postfix-mta-sts-resolver, which must be installed, and those about
# TLSA records with Postfix's, for all domains of a lab with signed zones. make test has a sample of them. Needs root.
.PHONY: tls mailauth
tls: deps
	go test -tags tls -count=1 -v -run Resolver ./internal/sending/tlspolicies ./internal/sending/servedpolicies
	go test -tags tls -count=1 -v -run TestDANELab ./internal/sending/delivery

# Compares our DMARC results for 300 domains in random trees with those of mailauth, which npm installs with its Node.
mailauth:
	cd scripts/mailauth && npm ci --no-audit --no-fund --silent
	go test -tags mailauth -count=1 -v -run Mailauth ./internal/mail/dmarc

# A real Postfix on loopback relays to our MX, takes our outgoing mail, and bounces what cannot be delivered. Needs root.
postfix:
	@bash scripts/postfix

# Builds everything that a release consists of in bin/release: programs, deb, rpm, container image, bills of materials and
# checksums. It builds twice and compares the bytes. Needs libssl-dev and Linux on amd64; the second build needs no network.
# RELEASE=--fresh compiles everything anew for the second build.
RELEASE ?=
release:
	go run ./scripts/release $(RELEASE)

# Writes the documentation as static files to bin/docs/VERSION, for hosting: make docs VERSION=v0.1.0 DOCS=/folder
DOCS ?= bin/docs
.PHONY: docs
docs:
	go run ./scripts/docs -o $(DOCS) $(if $(VERSION),-version $(VERSION))

# Builds a release and tests its packages, image and deployment files on Debian systems of its own. Needs root.
PACKAGES_RUN ?= .
packages-test:
	@bash scripts/packages-test '$(PACKAGES_RUN)'
