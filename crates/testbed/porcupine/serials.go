package main

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// checkSerials judges what goes across keys: the serials of commits, and those that clients see.
func (h *history) checkSerials() (wrong []string) {
	bad := collect(&wrong)

	// Every acknowledged write is one commit, and no commit is two writes.
	bySerial := map[uint64]*op{}
	byText := map[string]*op{}
	for _, o := range h.ops {
		if !o.isDone() || !o.commits() {
			continue
		}
		if o.Serial == 0 {
			bad("an acknowledged write names no serial: %s", o)
		} else if first := bySerial[o.Serial]; first != nil {
			bad("two writes were acknowledged as one commit:\n  %s\n  %s", first, o)
		}
		bySerial[o.Serial] = o
		if o.Text != "" {
			byText[o.Text] = o
		}
	}

	// A client never goes back.
	for _, o := range h.ops {
		if o.isKnown() && o.Serial != 0 && o.Serial < o.Seen {
			bad("an answer is older than what its client had seen, serial %d: %s", o.Seen, o)
		}
	}

	// Of two writes, the one that was acknowledged before the other was sent has the lower serial, whatever they write.
	commits := make([]*op, 0, len(bySerial))
	for _, o := range h.ops {
		if o.isDone() && o.commits() {
			commits = append(commits, o)
		}
	}
	byReturn := append([]*op(nil), commits...)
	sort.Slice(byReturn, func(a, b int) bool { return byReturn[a].Return < byReturn[b].Return })
	var newest *op
	next := 0
	for _, o := range commits {
		for next < len(byReturn) && byReturn[next].Return < o.Call {
			if newest == nil || byReturn[next].Serial > newest.Serial {
				newest = byReturn[next]
			}
			next++
		}
		if newest != nil && newest.Serial >= o.Serial {
			bad("a write has a lower serial than one that was acknowledged before it began:\n  %s\n  %s", newest, o)
		}
	}

	// A read shows the state of its serial: nothing later, and of articles nothing that was replaced by then.
	type version struct {
		key, name string
		number    int
	}
	replaced := map[version]*op{}
	for _, o := range commits {
		if o.F == "write" || o.F == "rename" || o.F == "use" {
			replaced[version{o.Key, o.Name, o.Base}] = o
		}
	}
	for _, o := range h.ops {
		if o.F != "read" || !o.isKnown() || o.Status != 200 && o.Status != 404 || o.Serial == 0 {
			continue
		}
		if from := byText[o.Got]; o.Got != "" && from != nil && from.Serial > o.Serial {
			bad("a read shows a later write than its serial says:\n  %s\n  %s", from, o)
		}
		if by := replaced[version{o.Key, o.Name, o.Version}]; by != nil && by.Serial <= o.Serial {
			bad("a read shows what had been replaced by the serial that it names:\n  %s\n  %s", by, o)
		}
	}

	// So does a page of a project, or the settings of an index.
	type slot struct {
		key    string
		member int
	}
	changes := map[slot][]*op{}
	for _, o := range commits {
		switch {
		case o.kind() == "project" && o.Name == "dev" && (o.F == "upload" || o.F == "delete"):
			changes[slot{o.Key, o.Member}] = append(changes[slot{o.Key, o.Member}], o)
		case o.kind() == "index":
			changes[slot{o.Key, 0}] = append(changes[slot{o.Key, 0}], o)
		}
	}
	for _, o := range h.ops {
		if o.F != "read-page" && o.F != "read-index" || !o.isDone() || o.Name == "final" || o.Got == "" {
			continue
		}
		for _, shown := range strings.Fields(o.Got) {
			at, text := slot{o.Key, 0}, shown
			if o.F == "read-page" {
				member, file, _ := strings.Cut(shown, "=")
				at.member, _ = strconv.Atoi(member)
				text, _, _ = strings.Cut(file, ",")
			}
			from := byText[text]
			if from == nil || from.Key != o.Key {
				continue
			}
			if from.Serial > o.Serial {
				bad("an answer shows a later write than its serial says:\n  %s\n  %s", from, o)
			}
			for _, by := range changes[at] {
				if by.Serial > from.Serial && by.Serial <= o.Serial {
					bad("an answer shows what had been replaced by the serial that it names:\n  %s\n  %s\n  %s", from, by, o)
				}
			}
		}
	}

	// A right that was revoked before a write began does not write.
	revoked := map[string]*op{}
	for _, o := range h.ops {
		if o.F == "revoke" && o.isDone() && (revoked[o.Key] == nil || o.Return < revoked[o.Key].Return) {
			revoked[o.Key] = o
		}
	}
	for _, o := range h.ops {
		by := revoked[o.Key]
		if o.F == "use" && o.isDone() && by != nil && (by.Return < o.Call || by.Serial < o.Serial) {
			bad("a revoked token wrote:\n  %s\n  %s", by, o)
		}
	}
	return wrong
}

// collect adds what is wrong to a list, each kind of it a few times only.
func collect(wrong *[]string) func(format string, values ...any) {
	counts := map[string]int{}
	return func(format string, values ...any) {
		if counts[format]++; counts[format] <= 5 {
			*wrong = append(*wrong, fmt.Sprintf(format, values...))
		}
	}
}
