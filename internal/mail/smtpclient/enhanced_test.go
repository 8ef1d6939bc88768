package smtpclient

import "testing"

func TestEnhancedCode(t *testing.T) {
	for text, want := range map[string]string{
		"5.1.1 no user": "5.1.1", "5.1.1": "5.1.1", "5.123.456 x": "5.123.456", "5.1.456": "5.1.456", "5.123.4": "5.123.4",
		"5.1234.1 x": "", "5.1.1234 x": "", "5.1.1.1": "", "5.x.1": "", "5.1.x": "", "5.1.1x": "", "5.1": "", "5..11": "",
		"51.1.1": "",
		"4.1.1":  "", "no 5.1.1": "", "": "", "5.1.1-": "", " 5.1.1": "",
	} {
		if got := enhancedCode([]byte(text), 550); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
