package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChanges(t *testing.T) {
	t.Parallel()
	before := load(t, source("", nil))
	after := load(t, source(`rate_limit = 7
		http_listen = ":81"
		public_url = "http://localhost:8080"
		allow_networks = ["10.8.0.0/16"]
		log_level = "debug"
		[[relays]]
		name = "a"
		address = "h:25"`, nil))
	live, restart := Changes(before, after)
	if diff := cmp.Diff([]string{"rate_limit", "allow_networks", "log_level", "relays"}, live); diff != "" {
		t.Errorf("live: %s", diff)
	}
	if diff := cmp.Diff([]string{"http_listen"}, restart); diff != "" {
		t.Errorf("restart: %s", diff)
	}
	next, err := TakeLive(before, after)
	if err != nil || next.RateLimit != 7 || next.HTTPListen != ":8080" || len(next.Relays) != 1 || before.RateLimit != 10 {
		t.Errorf("%+v, %v", next, err)
	}
	if live, restart := Changes(before, before); live != nil || restart != nil {
		t.Errorf("without a change: %v, %v", live, restart)
	}
	// A node whose transport is relay keeps its relay until it is started again with another transport.
	relay := load(t, source("transport = \"relay\"\nrelay_addr = \"h:25\"", nil))
	if _, err := TakeLive(relay, before); err == nil || !strings.Contains(err.Error(), "relay_addr") {
		t.Errorf("without the relay: %v", err)
	}
}
