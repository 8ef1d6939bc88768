package message

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckField(t *testing.T) {
	t.Parallel()
	for _, f := range []Field{
		{"X-Entity-Ref-ID", "123"}, {"X-Empty", ""}, {"In-Reply-To", "<a@b.c>"}, {"References", "<a@b.c> <d@e.f>"},
		{"List-Unsubscribe", "<https://example.com/u?x=1>, <mailto:u@example.com>"},
		{"List-Unsubscribe-Post", "List-Unsubscribe=One-Click"},
		{"Auto-Submitted", "auto-generated"}, {"Precedence", "bulk"}, {"Importance", "high"}, {"Message-ID", "<x@y>"},
		{"X-Tab", "a\tb"}, {"X-UTF8", "grüße 👋"}, {"!#$%&'*+-.^_`|~0", "odd but a token"}, {"To-Do", "not To"},
		{"Mimetype", "not MIME-"},
		{strings.Repeat("X", 76), "x"}, {"X-A", strings.Repeat("w ", 8192)}, {"X-A", strings.Repeat("w", 993)},
		{"X-Long", strings.Repeat("w ", 8000)}, {"X-Word", strings.Repeat("w", 990)},
		{"X-Encoded", strings.Repeat("é", 5000)},
	} {
		if err := CheckField(f.Name, f.Value); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
}

func TestCheckFieldRefuses(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"From", "to", "CC", "Bcc", "Subject", "Date", "Sender", "Reply-To", "MIME-Version", "mime-x", "Content-Type",
		"content-id",
		"DKIM-Signature", "Received", "Return-Path", "Resent-From", "resent-to", "ARC-Seal", "Authentication-Results",
		"Resent-Sender", "resent-BCC", "DomainKey-Signature", "dkim-x", "Received-SPF", "Delivered-To", "X-Postrider-Tag",
		"x-postrider-anything", "Resend-Idempotency-Key", "Postrider-Idempotency-Key",
	} {
		got, ok := errors.AsType[*FieldError](CheckField(name, "x"))
		if !ok || !got.Reserved || got.Name != name {
			t.Errorf("%s: error %#v", name, got)
		}
	}
	for _, f := range []Field{
		{"", "x"}, {"X Y", "x"}, {"X:", "x"}, {"X\r\nBcc", "x"}, {"X\x00", "x"}, {"Bcc ", "x"}, {"Ä", "x"}, {"\tX", "x"},
		{strings.Repeat("X", 77), "x"},
		{"X-A", "a\r\nBcc: x@y.z"}, {"X-A", "a\nb"}, {"X-A", "a\rb"}, {"X-A", "a\r\n b"}, {"X-A", "\x00"}, {"X-A", "\x1b[0m"},
		{"X-A", "\x7f"},
		{"X-A", strings.Repeat("w", 994)}, {"X-A", strings.Repeat("w ", 8192) + "w"}, {"X-A", "\x80"},
		{"X-A", "\xff"}, {"X-A", strings.Repeat("w", 1000)}, {"X-A", "a " + strings.Repeat("w  ", 400)},
		{"X-A", strings.Repeat("w ", 9000)},
	} {
		got, ok := errors.AsType[*FieldError](CheckField(f.Name, f.Value))
		if !ok || got.Reserved || !strings.HasSuffix(got.Reason, ".") {
			t.Errorf("%q %.40q: error %#v", f.Name, f.Value, got)
		}
	}
}

func TestAppendField(t *testing.T) {
	t.Parallel()
	word := strings.Repeat("w", 40)
	for _, tc := range []struct{ value, want string }{
		{"", "X-A:\r\n"},
		{" a ", "X-A: a\r\n"},
		{word + " " + word, "X-A: " + word + "\r\n " + word + "\r\n"},
		{word + " " + word[:30], "X-A: " + word + " " + word[:30] + "\r\n"}, // 76 columns
		{word + " " + word[:31], "X-A: " + word + "\r\n " + word[:31] + "\r\n"},
		{word + "  " + word, "X-A: " + word + "  " + word + "\r\n"},
		{word + "\t" + word, "X-A: " + word + "\t" + word + "\r\n"},
		{word + word + " a", "X-A: " + word + word + "\r\n a\r\n"},
	} {
		if got := string(appendField(nil, "X-A", tc.value)); got != tc.want {
			t.Errorf("%q became %q, want %q", tc.value, got, tc.want)
		}
	}
}

func FuzzCheckField(f *testing.F) {
	f.Add("X-A", "value")
	f.Add("Bcc", "x@y.z")
	f.Add("X-A", "a\r\nBcc: x@y.z")
	f.Add("References", strings.Repeat("<1234567890@example.com> ", 60))
	f.Add("X-Ü", "grüße\t =?utf-8?q?x?=")
	f.Fuzz(func(t *testing.T, name, value string) {
		if CheckField(name, value) != nil {
			return
		}
		m := plainMessage()
		m.Headers = []Field{{name, value}}
		raw, err := m.Compose()
		if err != nil {
			t.Fatalf("%q: %q passes the check and is not composed: %v", name, value, err)
		}
		checkLines(t, raw)
		bare, err := plainMessage().Compose()
		if err != nil {
			t.Fatal(err)
		}
		added := 1
		if strings.EqualFold(name, "Message-ID") {
			added = 0
		}
		if got, want := countFields(t, raw), countFields(t, bare)+added; got != want {
			t.Fatalf("%q: %q makes %d fields, want %d\n%s", name, value, got, want, raw)
		}
	})
}
