package main

import (
	"fmt"
	"sort"
	"strings"

	"github.com/anishathalye/porcupine"
)

// kinds of keys, each with a model of its own.
var kinds = []string{"article", "project", "index", "token"}

// answer is what the model expects to be told.
type answer struct {
	status  int
	version int
	got     string
}

// apply is one step of a server that does one thing after the other: what it answers, and its state afterwards.
type apply func(state any, o *op) (answer, any)

func modelOf(kind string) porcupine.Model {
	var step apply
	var start any
	switch kind {
	case "article":
		step, start = articleStep, article{}
	case "project":
		step, start = projectStep, project{}
	case "index":
		step, start = indexStep, index{}
	case "token":
		step, start = tokenStep, token{}
	default:
		step = func(state any, _ *op) (answer, any) { return answer{status: -1}, state }
	}
	return porcupine.Model{
		Init: func() any { return moment{state: start} },
		Step: func(state, input, _ any) (bool, any) {
			m, o := state.(moment), input.(*op)
			if o == theEnd {
				m.isOver = true
				return true, m
			}
			if !o.isKnown() && m.isOver {
				return true, m
			}
			expected, next := step(m.state, o)
			if !o.isKnown() {
				// Without an effect it has its place at the end: nothing else is tried, as each place doubles the orders.
				is := next != m.state
				m.state = next
				return is, m
			}
			switch {
			case o.isDone() && o.commits():
				if o.writesBefore != m.writes || o.readsBefore != m.reads {
					return false, m
				}
				m.writes++
			case o.isDone() && o.isRead() && o.Serial != 0:
				if o.writesBefore != m.writes {
					return false, m
				}
				m.reads++
			}
			m.state = next
			return answer{o.Status, o.Version, o.Got} == expected, m
		},
		DescribeOperation: func(input, _ any) string { return input.(*op).String() },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state.(moment).state) },
	}
}

// moment is the state of a model somewhere in an order of calls.
type moment struct {
	state any
	// The acknowledged writes and the reads so far: their serials say how they follow each other.
	writes, reads int
	// Only calls without an answer follow, which did nothing.
	isOver bool
}

// theEnd comes after all calls with an answer.
var theEnd = &op{F: "the end"}

// ---- articles: two names, each of which an article may have, with a file. A name that an article had redirects to the other.

type text struct {
	// "": never used; "article"; "redirect"
	Is      string
	Version int
	Text    string
	File    string
}

type article struct{ A, B text }

func articleStep(state any, o *op) (answer, any) {
	s := state.(article)
	here, other := &s.A, &s.B
	if o.Name == "b" {
		here, other = other, here
	}
	refuse := func(status int) (answer, any) { return answer{status: status}, state }
	// What is not there, or has another name now.
	if here.Is == "" && !(o.F == "write" && o.Base == 0) {
		return refuse(404)
	}
	if here.Is == "redirect" && o.F != "write" {
		if o.isRead() {
			return refuse(308)
		}
		return refuse(409)
	}
	switch o.F {
	case "read":
		return answer{200, here.Version, here.Text}, state
	case "write":
		if o.Base != here.Version {
			return refuse(409)
		}
		if here.Is != "article" {
			here.File = ""
		}
		here.Is, here.Version, here.Text = "article", here.Version+1, o.Text
		return answer{status: 201, version: here.Version}, s
	case "rename":
		if o.Base != here.Version || other.Is == "article" {
			return refuse(409)
		}
		*other = text{"article", here.Version + 1, here.Text, here.File}
		*here = text{Is: "redirect", Version: other.Version}
		return answer{status: 201, version: other.Version}, s
	case "attach":
		if o.Old == "" && here.File != "" {
			return refuse(428)
		}
		if o.Old != here.File {
			return refuse(412)
		}
		status := 200
		if here.File == "" {
			status = 201
		}
		here.File = o.Text
		return answer{status: status}, s
	case "read-file":
		if here.File == "" {
			return refuse(404)
		}
		return answer{status: 200, got: here.File}, state
	}
	return refuse(-1)
}

// ---- projects: releases with one file each, in an index whose files may be replaced, and in one where they may not.

const releases = 4

type release struct {
	File string
	Yank string
}

type project struct{ Dev, Final [releases]release }

// page renders an index's page of the project as the recorder does.
func page(all [releases]release) string {
	var shown []string
	for at, one := range all {
		if one.File != "" {
			shown = append(shown, fmt.Sprintf("%d=%s,%s", at, one.File, one.Yank))
		}
	}
	sort.Strings(shown)
	return strings.Join(shown, " ")
}

func projectStep(state any, o *op) (answer, any) {
	s := state.(project)
	all := &s.Dev
	if o.Name == "final" {
		all = &s.Final
	}
	if o.Member < 0 || o.Member >= releases {
		return answer{status: -1}, state
	}
	one := &all[o.Member]
	if o.F == "read-page" {
		return answer{status: 200, got: page(*all)}, state
	}
	if one.File == "" && o.F != "upload" {
		if o.F == "push" {
			return answer{status: 400}, state
		}
		return answer{status: 404}, state
	}
	switch o.F {
	case "upload":
		if o.Name == "final" && one.File != "" && one.File != o.Text {
			return answer{status: 409}, state
		}
		one.File = o.Text
	case "yank":
		one.Yank = o.Text
	case "unyank":
		one.Yank = ""
	case "delete":
		*one = release{}
	case "push":
		to := &s.Final[o.Member]
		if to.File != "" && to.File != one.File {
			return answer{status: 409}, state
		}
		if to.File == "" {
			*to = *one
		}
	default:
		return answer{status: -1}, state
	}
	return answer{status: 200}, s
}

// ---- indexes: a title that is replaced, and a list of members, each of which is added to it or taken out of it.

type index struct {
	Title   string
	Members uint64
}

func (i index) shown() string {
	shown := []string{i.Title}
	for at := 0; at < 64; at++ {
		if i.Members&(1<<at) != 0 {
			shown = append(shown, fmt.Sprint(at))
		}
	}
	return strings.Join(shown, " ")
}

func indexStep(state any, o *op) (answer, any) {
	s := state.(index)
	switch o.F {
	case "add":
		s.Members |= 1 << o.Member
	case "take":
		if s.Members&(1<<o.Member) == 0 {
			return answer{status: 400}, state
		}
		s.Members &^= 1 << o.Member
	case "read-index":
		return answer{status: 200, got: s.shown()}, state
	default:
		return answer{status: -1}, state
	}
	s.Title = o.Text
	return answer{status: 200}, s
}

// ---- tokens: made, used for writes of one article, revoked.

type token struct {
	Is      string // "", "valid", "revoked"
	Version int
	Text    string
}

func tokenStep(state any, o *op) (answer, any) {
	s := state.(token)
	switch o.F {
	case "make":
		if s.Is != "" {
			return answer{status: -1}, state
		}
		s.Is = "valid"
		return answer{status: 201}, s
	case "revoke":
		if s.Is != "valid" {
			return answer{status: 404}, state
		}
		s.Is = "revoked"
		return answer{status: 204}, s
	case "use":
		switch {
		case s.Is != "valid":
			return answer{status: 401}, state
		case o.Base != s.Version && s.Version == 0:
			return answer{status: 404}, state
		case o.Base != s.Version:
			return answer{status: 409}, state
		}
		s.Version, s.Text = s.Version+1, o.Text
		return answer{status: 201, version: s.Version}, s
	case "read":
		if s.Version == 0 {
			return answer{status: 404}, state
		}
		return answer{200, s.Version, s.Text}, state
	}
	return answer{status: -1}, state
}
