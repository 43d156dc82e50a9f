%% @doc The terminal of `weir scope'. bin/weir switches it to a mode in which keys arrive one by one, and restores it
%% afterwards.
-module(weir_cli_scope_terminal).

-export([run/2]).

-define(TICK, 1000).

%% Milliseconds after which an escape is the key Esc, and not the beginning of a sequence.
-define(ESCAPE_MS, 50).

-record(state, {
    port :: port(),
    look :: look(),
    screen :: weir_cli_scope_screen:screen(),
    worker = none :: none | pid(),
    input = <<>> :: binary()
}).

-type look() :: fun(
    (weir_scope_page:name(), weir_scope_page:sort()) -> {ok, weir_cli_scope_screen:data()} | {error, unicode:chardata()}
).
%% Returns the data of a page, or a message why there are none. It may block.

%% @doc Shows a node or a recording, until the user quits or the terminal is gone.
-spec run(node(), look()) -> ok.
run(Node, Look) ->
    Port = open_port({fd, 0, 1}, [binary, stream, eof]),
    %% The alternate screen, without a cursor and without wrapping.
    write(Port, "\e[?1049h\e[?25l\e[?7l\e[2J"),
    ask_size(Port),
    self() ! tick,
    ok = loop(drawn(#state{port = Port, look = Look, screen = weir_cli_scope_screen:new(Node)})),
    write(Port, "\e[?7h\e[?25h\e[?1049l"),
    ok.

loop(#state{port = Port, screen = Screen, worker = Worker, input = Input} = State) ->
    receive
        {Port, {data, Bytes}} ->
            typed(State#state{input = <<Input/binary, Bytes/binary>>});
        {Port, eof} ->
            ok;
        tick ->
            _ = erlang:send_after(?TICK, self(), tick),
            ask_size(Port),
            loop(asked(State));
        {looked, Worker, Page, {ok, Data}} ->
            loop(drawn(State#state{worker = none, screen = weir_cli_scope_screen:data(Page, Data, Screen)}));
        {looked, Worker, _Page, {error, Reason}} ->
            loop(drawn(State#state{worker = none, screen = weir_cli_scope_screen:failed(Reason, Screen)}));
        {looked, _Other, _Page, _} ->
            loop(State)
    after time_for(Input) ->
        %% Nothing followed: it was the key Esc.
        <<_, Rest/binary>> = Input,
        pressed(escape, State#state{input = Rest})
    end.

time_for(<<>>) -> infinity;
time_for(_) -> ?ESCAPE_MS.

%% One request at a time.
asked(#state{worker = none, look = Look, screen = Screen} = State) ->
    case weir_cli_scope_screen:wanted(Screen) of
        nothing ->
            State;
        {Page, Sort} ->
            Self = self(),
            State#state{worker = spawn_link(fun() -> Self ! {looked, self(), Page, Look(Page, Sort)} end)}
    end;
asked(State) ->
    State.

typed(#state{input = Input} = State) ->
    case decoded(Input) of
        more ->
            loop(State);
        {{size, Rows, Columns}, Rest} ->
            typed(
                drawn(State#state{
                    input = Rest, screen = weir_cli_scope_screen:resize(Rows, Columns, State#state.screen)
                })
            );
        {Key, Rest} ->
            pressed(Key, State#state{input = Rest})
    end.

pressed(Key, #state{screen = Screen} = State) ->
    case weir_cli_scope_screen:key(Key, Screen) of
        quit ->
            ok;
        Next ->
            Before = weir_cli_scope_screen:wanted(Screen),
            Changed = drawn(State#state{screen = Next}),
            case weir_cli_scope_screen:wanted(Next) of
                Before -> typed(Changed);
                %% A new page does not wait for the answer to the request of the old one.
                _ -> typed(asked(Changed#state{worker = none}))
            end
    end.

decoded(<<>>) -> more;
decoded(<<"\e[A", Rest/binary>>) -> {up, Rest};
decoded(<<"\e[B", Rest/binary>>) -> {down, Rest};
decoded(<<"\e[C", Rest/binary>>) -> {right, Rest};
decoded(<<"\e[D", Rest/binary>>) -> {left, Rest};
decoded(<<"\eO", Letter, Rest/binary>>) -> decoded(<<"\e[", Letter, Rest/binary>>);
decoded(<<"\e[", Rest/binary>>) -> sequence(Rest, Rest);
decoded(<<"\e">>) -> more;
decoded(<<"\e", Rest/binary>>) -> {escape, Rest};
decoded(<<"\t", Rest/binary>>) -> {tab, Rest};
decoded(<<Enter, Rest/binary>>) when Enter =:= $\r; Enter =:= $\n -> {enter, Rest};
decoded(<<Erase, Rest/binary>>) when Erase =:= 127; Erase =:= 8 -> {backspace, Rest};
decoded(<<Key/utf8, Rest/binary>>) -> {Key, Rest};
decoded(<<_, Rest/binary>>) -> {0, Rest}.

%% Parameters, then a letter. `ROWS;COLUMNSR' is the position of the cursor, in the bottom right corner.
sequence(All, <<Byte, Rest/binary>>) when Byte >= $@, Byte =< $~ ->
    Parameters = binary:part(All, 0, byte_size(All) - byte_size(Rest) - 1),
    case {Byte, [string:to_integer(Number) || Number <- string:lexemes(Parameters, ";")]} of
        {$R, [{Rows, _}, {Columns, _}]} when is_integer(Rows), is_integer(Columns) -> {{size, Rows, Columns}, Rest};
        _ -> {0, Rest}
    end;
sequence(All, <<_, Rest/binary>>) ->
    sequence(All, Rest);
sequence(_All, <<>>) ->
    more.

drawn(#state{port = Port, screen = Screen} = State) ->
    write(Port, weir_cli_scope_screen:draw(Screen)),
    State.

%% No signal reports a change of the window's size. So the cursor is moved to the bottom right corner and asked for its
%% position.
ask_size(Port) ->
    write(Port, "\e7\e[999;999H\e[6n\e8").

write(Port, Text) ->
    true = port_command(Port, unicode:characters_to_binary(Text)),
    ok.
