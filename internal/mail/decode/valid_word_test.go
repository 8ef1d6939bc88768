package decode

import "testing"

func TestIsValidWord(t *testing.T) {
	for s, want := range map[string]bool{"=?utf-8?q?a?=": true, "=?UTF8?B?w6Q=?=": true, "=?iso-8859-1?q?=E4?=": true,
		"=?us-ascii?q?a?=": true,
		"=?utf-8?q?a?= b":  false, "=?utf-8?q?a?==?utf-8?q?b?=": false, "=?utf-8?q??=": false, "=?x-unknown?q?a?=": false,
		"=?utf-8?x?a?=": false,
		"=?utf-8?q?a":   false, "a": false, "": false, "=?utf-8?q?=0A?=": false, "=?utf-8?q?=7F?=": false,
		"=?iso-2022-jp?B?GyRCJCIbKEI=?=": true} {
		if IsValidWord(s) != want {
			t.Errorf("%q is not %v", s, want)
		}
	}
}
