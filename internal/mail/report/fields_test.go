package report

import "testing"

// Reports are parsed even if their fields deviate from RFC 3464.
func TestFieldsOfARecipient(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        Recipient
		names       bool
	}{
		{"status", "5.1.1", Recipient{Status: "5.1.1"}, false},
		{"status", "5.1.1 (bad destination mailbox address)", Recipient{Status: "5.1.1"}, false},
		{"status", "5.1.1(bad)", Recipient{Status: "5.1.1"}, false},
		{"status", "(5.1.1)", Recipient{Status: "5.1.1"}, false},
		{"status", "bad;5.1.1,5.2.2", Recipient{Status: "5.1.1"}, false},
		{"status", "unknown", Recipient{}, false},
		{"action", " Failed; see below", Recipient{Action: Failed}, false},
		{"action", "failure", Recipient{Action: Failed}, false},
		{"action", "delay", Recipient{Action: Delayed}, false},
		{"action", "relayed", Recipient{Action: Relayed}, false},
		{"final-recipient", "rfc822; <ann@one.example>", Recipient{Final: "ann@one.example"}, true},
		{"final-recipient", "ann@one.example", Recipient{Final: "ann@one.example"}, true},
		{"final-recipient", `utf-8; \x{E4}nn@one.example`, Recipient{Final: "änn@one.example"}, true},
		{"final-recipient", `UTF-8; a\x{1}b\x{110000}\x{E4@one.example`,
			Recipient{Final: `a\x{1}b\x{110000}\x{E4@one.example`}, true},
		{"final-recipient", "rfc822; somebody", Recipient{}, false},
		{"final-recipient", "rfc822; @one.example", Recipient{}, false},
		{"final-recipient", "rfc822; ann@", Recipient{}, false},
		{"final-recipient", "rfc822; ann lee@one.example", Recipient{}, false},
		{"final-recipient", `rfc822; "ann lee"@one.example`, Recipient{Final: `"ann lee"@one.example`}, true},
		{"original-recipient", "rfc822;ann@one.example", Recipient{Original: "ann@one.example"}, true},
		{"original-recipient", "rfc822;", Recipient{}, false},
		{"diagnostic-code", "smtp; 550  No such\tuser", Recipient{Diagnostic: "550 No such user"}, false},
		{"diagnostic-code", "550 5.1.1; No such user", Recipient{Diagnostic: "550 5.1.1; No such user"}, false},
		{"remote-mta", "dns; mx.one.example", Recipient{RemoteMTA: "mx.one.example"}, false},
		{"arrival-date", "today", Recipient{}, false},
	} {
		var got Recipient
		if names := got.take(c.name, c.value); got != c.want || names != c.names {
			t.Errorf("%s: %s: %+v, names one %v", c.name, c.value, got, names)
		}
	}
}

// If a field for a recipient is missing, its value is derived from other fields.
func TestFieldsThatFollow(t *testing.T) {
	for _, c := range []struct{ have, want Recipient }{
		{Recipient{Diagnostic: "550 5.1.1 No such user"}, Recipient{Diagnostic: "550 5.1.1 No such user", Status: "5.1.1",
			Action: Failed}},
		{Recipient{Diagnostic: "451 Busy"}, Recipient{Diagnostic: "451 Busy", Action: Delayed}},
		{Recipient{Diagnostic: "550 Busy"}, Recipient{Diagnostic: "550 Busy", Action: Failed}},
		{Recipient{Diagnostic: "450 4.2.2 Full", Status: "4.0.0"}, Recipient{Diagnostic: "450 4.2.2 Full", Status: "4.2.2",
			Action: Delayed}},
		{Recipient{Diagnostic: "550 5.1.1 Gone", Status: "4.0.0"}, Recipient{Diagnostic: "550 5.1.1 Gone", Status: "4.0.0",
			Action: Delayed}},
		{Recipient{Diagnostic: "550 5.1.1 Gone", Status: "5.2.1"}, Recipient{Diagnostic: "550 5.1.1 Gone", Status: "5.2.1",
			Action: Failed}},
		{Recipient{Status: "2.0.0", Diagnostic: "250 ok"}, Recipient{Status: "2.0.0", Diagnostic: "250 ok",
			Action: Delivered}},
		{Recipient{Final: "ann@one.example", Action: Failed}, Recipient{Final: "ann@one.example", Action: Failed,
			Diagnostic: "she left"}},
		{Recipient{Final: "ann@one.example", Action: Relayed}, Recipient{Final: "ann@one.example", Action: Relayed}},
		{Recipient{Final: "ann@one.example", Action: Delivered}, Recipient{Final: "ann@one.example", Action: Delivered}},
		{Recipient{Final: "ann@one.example", Action: Expanded}, Recipient{Final: "ann@one.example", Action: Expanded}},
	} {
		got := c.have
		got.complete(func() statements {
			return statements{each: []Recipient{{Final: "ann@one.example", Diagnostic: "she left"}}}
		})
		if got != c.want {
			t.Errorf("%+v becomes %+v, want %+v", c.have, got, c.want)
		}
	}
}
