%% @doc Writes and reads recordings of a node: files in which each line is a JSON object. A file whose name ends in
%% `.gz' is compressed.
%%
%% <table>
%% <tr><td>first line</td><td>`format' (`weir_scope'), `version' (1), `node', `began' (milliseconds since 1970), `tabs'
%% (`name' and `sorts' of each)</td></tr>
%% <tr><td>`columns'</td><td>the names of the values in the following lines</td></tr>
%% <tr><td>`at', `values'</td><td>the sample of a second</td></tr>
%% <tr><td>`at', `tab', `blocks'</td><td>what a tab showed, in the form of {@link weir_scope_tabs}</td></tr>
%% </table>
%% An incomplete last line, as of a command that was killed, is ignored.
-module(weir_scope_recording).

-export([record/3]).
-export([read/1]).
-export([node/1]).
-export([tabs/1]).
-export([span/1]).
-export([series/2]).
-export([look/3]).

-export_type([recording/0, options/0, reason/0]).

-record(recording, {
    node :: binary(),
    tabs :: [{binary(), [binary()]}],
    %% The oldest first.
    rows :: [{At :: integer(), Columns :: [binary()], [number()]}],
    looks :: #{Tab :: binary() => [{At :: integer(), Blocks :: [map()]}]}
}).

-opaque recording() :: #recording{}.

-type options() :: #{seconds => 1..86_400, every => 1..3600, load => boolean(), until => fun(() -> boolean())}.
%% `seconds' (60): how long to record. `every' (10): seconds between records of the tabs. `load': that of the view.
%% `until' is called each second; the recording stops if it returns `true'.

-type reason() ::
    weir_scope:reason()
    | {file, file:posix() | badarg | system_limit}
    | {no_recording, file:name_all()}
    | {too_large, Bytes :: pos_integer()}.
%% `no_recording': the file has another format. `too_large': the file has more than these bytes after decompression.

%% The limit of a file after decompression: about a day of a large node.
-define(MOST_BYTES, 512 * 1024 * 1024).

-define(PIECE, 1024 * 1024).

%% Records %%%

%% @doc Records a node into a file. An existing file is replaced after the first sample of the node. Returns the number
%% of recorded seconds. If the node goes away, the file keeps what was recorded.
-spec record({node(), weir_scope:view()}, file:name_all(), options()) ->
    {ok, Seconds :: non_neg_integer()} | {error, reason()}.
record({_, View} = Whom, Name, Options) ->
    case weir_scope:sample(View) of
        {ok, #{at := Began}} -> record(Whom, Began, Name, Options);
        {error, _} = Error -> Error
    end.

record({Node, View}, Began, Name, Options) ->
    case file:open(Name, [write, raw | compressed(Name)]) of
        {ok, File} ->
            try
                Tabs = [#{name => Tab, sorts => Sorts} || {Tab, Sorts} <- weir_scope_tabs:all()],
                ok = line(File, #{format => weir_scope, version => 1, node => Node, began => Began, tabs => Tabs}),
                Look = #{node => Node, load => maps:get(load, Options, true), past => []},
                seconds(maps:get(seconds, Options, 60), 0, Began, none, {File, View, Look, Options})
            catch
                throw:{file, _} = Reason -> {error, Reason}
            after
                _ = file:close(File)
            end;
        {error, Reason} ->
            {error, {file, Reason}}
    end.

compressed(Name) ->
    case filename:extension(Name) of
        Extension when Extension =:= ".gz"; Extension =:= <<".gz">> -> [compressed];
        _ -> []
    end.

line(File, Object) ->
    case file:write(File, [weir_json:compact(Object), $\n]) of
        ok -> ok;
        {error, Reason} -> throw({file, Reason})
    end.

seconds(Most, Most, _After, _Columns, _To) ->
    {ok, Most};
seconds(Most, Done, After, Columns, {File, View, Look, Options} = To) ->
    Stop = maps:get(until, Options, fun() -> false end),
    case Stop() orelse weir_scope:history(View, second, After) of
        true ->
            {ok, Done};
        {ok, []} ->
            timer:sleep(200),
            seconds(Most, Done, After, Columns, To);
        {ok, Series} ->
            Rows = lists:sort([{At, Names, Values} || #{columns := Names, rows := All} <- Series, {At, Values} <- All]),
            {At, Names, Values} = hd(Rows),
            ok = case Names of Columns -> ok; _ -> line(File, #{columns => Names}) end,
            ok = line(File, #{at => At, values => weir_scope_history:short(Values)}),
            case looks(Done rem maps:get(every, Options, 10), Done, File, View, Look) of
                ok -> seconds(Most, Done + 1, At, Names, To);
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

%% The tabs clocks and doctor are only recorded once, at the start.
looks(0, Done, File, View, Look) ->
    Tabs = [
        {Tab, Sort}
     || {Tab, [Sort | _]} <- weir_scope_tabs:all(), Done =:= 0 orelse not lists:member(Tab, [clocks, doctor])
    ],
    lists:foldl(
        fun
            ({Tab, Sort}, ok) ->
                case weir_scope_tabs:look(Tab, Sort, View, Look) of
                    {ok, Document} -> line(File, Document#{tab => Tab});
                    {error, _} = Error -> Error
                end;
            (_, Error) ->
                Error
        end,
        ok,
        Tabs
    );
looks(_, _Done, _File, _View, _Look) ->
    ok.

%% Reads %%%

%% @doc Reads a recording.
-spec read(file:name_all()) -> {ok, recording()} | {error, reason()}.
read(Name) ->
    %% The option `compressed' also reads files that are not compressed.
    case file:open(Name, [read, raw, binary, compressed]) of
        {ok, File} ->
            try bytes(File, []) of
                {ok, Bytes} -> decoded(Name, binary:split(Bytes, <<"\n">>, [global]));
                {error, _} = Error -> Error
            after
                _ = file:close(File)
            end;
        {error, Reason} ->
            {error, {file, Reason}}
    end.

bytes(File, Pieces) ->
    case file:read(File, ?PIECE) of
        {ok, Piece} when length(Pieces) * ?PIECE < ?MOST_BYTES -> bytes(File, [Piece | Pieces]);
        {ok, _} -> {error, {too_large, ?MOST_BYTES}};
        eof -> {ok, iolist_to_binary(lists:reverse(Pieces))};
        {error, Reason} -> {error, {file, Reason}}
    end.

%% The part after the last newline is empty or an incomplete line.
decoded(Name, [First | Lines]) when Lines =/= [] ->
    case weir_json:decode(First) of
        {ok, #{<<"format">> := <<"weir_scope">>, <<"version">> := 1, <<"node">> := Node, <<"tabs">> := Tabs}} ->
            try lists:foldl(fun read_line/2, {none, [], #{}}, lists:droplast(Lines)) of
                {_, Rows, Looks} ->
                    {ok, #recording{
                        node = Node,
                        tabs = [{Tab, Sorts} || #{<<"name">> := Tab, <<"sorts">> := Sorts} <- Tabs],
                        rows = lists:reverse(Rows),
                        looks = maps:map(fun(_, All) -> lists:reverse(All) end, Looks)
                    }}
            catch
                throw:no_recording -> {error, {no_recording, Name}}
            end;
        _ ->
            {error, {no_recording, Name}}
    end;
decoded(Name, _) ->
    {error, {no_recording, Name}}.

read_line(Line, {Columns, Rows, Looks}) ->
    case weir_json:decode(Line) of
        {ok, #{<<"columns">> := Names}} ->
            {Names, Rows, Looks};
        {ok, #{<<"at">> := At, <<"values">> := Values}} when length(Values) =:= length(Columns) ->
            {Columns, [{At, Columns, Values} | Rows], Looks};
        {ok, #{<<"at">> := At, <<"tab">> := Tab, <<"blocks">> := Blocks}} ->
            {Columns, Rows, Looks#{Tab => [{At, Blocks} | maps:get(Tab, Looks, [])]}};
        _ ->
            throw(no_recording)
    end.

%% @doc Returns the recorded node.
-spec node(recording()) -> binary().
node(#recording{node = Node}) -> Node.

%% @doc Returns the tabs with their sort columns.
-spec tabs(recording()) -> [{binary(), [binary()]}].
tabs(#recording{tabs = Tabs}) -> Tabs.

%% @doc Returns the times of the first and the last sample in milliseconds since 1970, or `none' if there are no
%% samples.
-spec span(recording()) -> {integer(), integer()} | none.
span(#recording{rows = []}) -> none;
span(#recording{rows = [{First, _, _} | _] = Rows}) -> {First, element(1, lists:last(Rows))}.

%% @doc Returns the samples later than `After'. Rows with the same columns are together.
-spec series(recording(), After :: integer()) -> [#{columns := [binary()], rows := [{integer(), [number()]}]}].
series(#recording{rows = Rows}, After) ->
    Later = [Row || {At, _, _} = Row <- Rows, At > After],
    [
        #{columns => Columns, rows => [{At, Values} || {At, Same, Values} <- Later, Same =:= Columns]}
     || Columns <- lists:usort([Columns || {_, Columns, _} <- Later])
    ].

%% @doc Returns the last record of a tab at or before `At', or the first record if all are later.
-spec look(recording(), Tab :: binary(), At :: integer()) ->
    {ok, At :: integer(), Blocks :: [map()]} | {error, {not_recorded, binary()}}.
look(#recording{looks = Looks}, Tab, At) ->
    case Looks of
        #{Tab := [First | _] = All} ->
            {Then, Blocks} = lists:last([First | [Look || {Then, _} = Look <- All, Then =< At]]),
            {ok, Then, Blocks};
        _ ->
            {error, {not_recorded, Tab}}
    end.
